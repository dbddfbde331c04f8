"""What EC2 grants, bills and limits, each fact once. From the EC2 user guide, or measured where it is silent."""

# "Spot Instance interruption notices": from the notice to the end of the instance.
INTERRUPTION_NOTICE_S = 120.0
# Pending is not billed; an instance is `running` about this long after the launch, long before it serves (measured).
UNBILLED_PENDING_S = 20.0
# "On-Demand Instance pricing", Linux: by the second, and at least this much of every start.
MINIMUM_BILLED_S = 60.0
# "Burstable performance instances, launch credits": starts of an account in 24 h that are granted them (T2).
LAUNCH_CREDIT_STARTS_PER_DAY = 100
# "Instance lifecycle": a terminated instance is described for about so long.
TERMINATED_DESCRIBED_S = 3600.0
# "Stop and start": no start until it has stopped, which takes seconds to a minute (assumed: the longest).
STOPPING_S = 60.0
