# try_it.py
from ranker import Ranker

import mark

service = mark.Service(
    name="ranker",
    model=Ranker,
    slo_ms=100,
    slo_attainment=0.98,
    catalog="aws-2026",
    instances=["c7i.*"],
)
measured = service.profile("profile.csv", instance="c7i.large", batches=(1, 4, 16), seconds=0.5)
print(measured.knee.batch, measured.warnings())

trace = "synthetic:poisson?rate=2000"
part = {"profile": "profile.csv", "start_s": 1800, "duration_s": 300}  # half an hour of history comes before
result = service.simulate(trace, **part)
print(result.bill.total, result.slo_result.attainment)

results = service.compare(trace, ["mark", "reactive"], **part)
print({policy: result.regret for policy, result in results.items()})

decision = service.plan(trace, at_s=1800, profile="profile.csv")
print({target.offer: target.count for target in decision.plan.targets})

with service.running() as server:
    print(server.url)
