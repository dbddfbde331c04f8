"""EC2's grants, billing rules and limits, from the EC2 user guide, or measured if it does not say."""

# "Spot Instance interruption notices": from the notice to the end of the instance.
INTERRUPTION_NOTICE_S = 120.0
# Pending is not billed. An instance is `running` about this long after the launch, long before it serves (measured).
UNBILLED_PENDING_S = 20.0
# "On-Demand Instance pricing", Linux: billed by the second, with this minimum for every start.
MINIMUM_BILLED_S = 60.0
# "Burstable performance instances, launch credits": granted to this many starts of an account in 24 h (T2).
LAUNCH_CREDIT_STARTS_PER_DAY = 100
# "Instance lifecycle": a terminated instance is described for about this long.
TERMINATED_DESCRIBED_S = 3600.0
# "Stop and start": no start until the instance has stopped, which takes seconds to a minute (assumed: the longest).
STOPPING_S = 60.0
