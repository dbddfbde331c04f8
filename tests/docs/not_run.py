"""What of the documentation no test runs, by page and the beginning of its first line, and why not."""

_OTHER_DATA = "takes minutes, and data that is not in the repository"

NOT_RUN = {
    ("cli.md", "mark compare synthetic:diurnal --service"): "a day of traffic; the quick start runs half an hour",
    ("cli.md", 'mark insure "synthetic:poisson?rate=100"'): "a minute",
    ("insurance.md", 'mark insure "synthetic:poisson?rate=100"'): "a minute",
    ("insurance.md", "mark insure train model.pt2 --data input"): "needs a model of yours",
    ("controller.md", "mark controller service.toml --site mark"): "needs a site on AWS",
    ("deploy.md", "mark deploy service.toml --region eu-wes"): "needs an AWS account",
    ("deploy.md", "mark deploy pipeline.toml service.toml -"): "needs an AWS account",
    ("deploy.md", "mark deploy service.toml --rollback     "): "needs an AWS account",
    ("deploy.md", "mark deploy service.toml --bake"): "needs an AWS account",
    ("deploy-reference.md", "import boto3"): "needs an AWS account",
    ("deploy.md", "mark deploy --print-policy --name mark -"): "needs an AWS account",
    ("deploy.md", "mark keys list --name mark --region eu-w"): "needs an AWS account",
    ("deploy.md", "aws ssm start-session --target INSTANCE "): "needs an AWS account",
    ("deploy.md", "make test-slow          # every module w"): "takes minutes; CI runs it",
    ("feedback.md", "mark serve service.toml"): "tests/serving/test_server_process.py does it, with two bouncers",
    (
        "feedback.md",
        "mark serve service.toml --peer https://1",
    ): "needs another machine; tests/serving/learned/test_processes.py starts two servers",
    (
        "bound.md",
        "mark bound TRACE --service S --certifica",
    ): "needs the files of a run",
    (
        "forecasting.md",
        "mark forecast fit TRACE --predictor lstm",
    ): "takes minutes, and torch; tests/cli/test_forecast_fit.py runs it in small",
    (
        "forecasting.md",
        "mark forecast backtest TRACE --predictor",
    ): "takes minutes; tests/cli/test_forecast.py runs it in small",
    (
        "scalers.md",
        "mark compare access.log --service servic",
    ): "needs the trace; tests/planning/policies/test_as_is.py",
    (
        "what-if.md",
        "pip install 'mark-serving[ray]'      # o",
    ): "needs a Ray cluster; tests/studies/test_ray_executor.py starts one",
    (
        "pipelines-explained.md",
        'mark compare "synthetic:gamma?rate=800&r',
    ): "a minute; tests/cli/test_simulate_pipeline.py compares small ones",
    (
        "profiles.md",
        "mark profile ranker:Ranker --instance c5",
    ): "takes minutes; the page on a bouncer before your server profiles one in seconds",
    (
        "profiles.md",
        "mark profile service.toml --on c7i.large",
    ): "rents machines; tests/infra/testbed/test_rented_profile.py runs it on the testbed",
    ("selection.md", "mark simulate TRACE --service service.to"): "the digit models have no profiles",
    ("reconcile.md", "mark reconcile my-access-logs/ --service"): "needs an invoice",
    ("reproduce.md", "for size in large xlarge 2xlarge 4xlarge"): "needs an AWS account",
    (
        "reproduce.md",
        "mark reproduce fig6 --trace $D/traces/tw",
    ): "takes a minute, and data that is not in the repository",
    (
        "reproduce.md",
        "mark reproduce fig7 --spot-trace $D/spot",
    ): _OTHER_DATA,
    ("reproduce.md", "mark reproduce fig8 --report fig8.html"): "takes minutes",
    (
        "reproduce.md",
        "mark reproduce fig9 --report fig9.html",
    ): "takes half a minute; tests/papers/test_reproduce_command.py runs a part",
    (
        "reproduce.md",
        "mark reproduce optimal --trace $D/traces",
    ): "takes a minute, and data that is not in the repository",
    (
        "reproduce.md",
        "from mark.simulation.run import simulate",
    ): _OTHER_DATA,
    ("reproduce.md", "mark reproduce inferline-fig6 --report f"): "takes a minute; make test-slow runs it",
    ("reproduce.md", "mark reproduce inferline-activation"): "takes minutes",
    ("results.md", "mark reproduce table5"): "takes minutes",
    ("results.md", "mark compare traces/diurnal_day_5s.csv.g"): "takes minutes",
    ("results.md", "python benchmarks/data_plane/boot.py  # "): "takes minutes, and root",
    ("results.md", "mark compare $D/traces/twitter_stream_20"): _OTHER_DATA,
    ("results.md", "python benchmarks/planner/regret.py fami"): _OTHER_DATA,
    ("results.md", "python benchmarks/planner/pipeline_regre"): _OTHER_DATA,
    ("results.md", "python benchmarks/planner/warm_pool.py -"): _OTHER_DATA,
    ("results.md", "python benchmarks/planner/clocked.py"): "takes minutes",
    ("results.md", "python benchmarks/planner/windows_kept.p"): _OTHER_DATA,
    ("results.md", "mark simulate $D/traces/twitter_stream_2"): _OTHER_DATA,
    ("results.md", "python benchmarks/data_plane/make_alb_lo"): "takes a minute; a million requests",
    ("results.md", "mark forecast backtest $D/traces/TRACE.c"): _OTHER_DATA,
    ("results.md", "make bench-forecasts"): "an hour",
    ("quick-start.md", "pip install -c constraints.txt -e '.[ser"): "the tests have it installed",
    ("sdk.md", "# try_it.py"): "tests/sdk/test_service.py runs it, and reads what it prints",
    (
        "serving.md",
        "env HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 pip",
    ): "compiles for minutes; make test-compiled does it, and CI",
    (
        "testbed.md",
        "mark testbed up examples/pipeline/digits",
    ): "tests/infra/testbed/test_testbed_pipeline.py runs a smaller one",
    ("testbed.md", "mark testbed up words.toml --compress 20"): "tests/infra/testbed/test_faults.py runs a smaller one",
    ("serving-benchmark.md", "python benchmarks/data_plane/overload.py"): "a benchmark of minutes",
    ("simulate-your-alb-logs.md", "aws s3 sync s3://BUCKET/AWSLogs/ACCOUNT/"): "needs an AWS account",
    ("traces.md", "mark trace info 'cloudwatch:AWS/Applicat"): "needs an AWS account",
    ("README.md", "make demo                          # a d"): "installs and simulates a day; takes minutes",
    ("README.md", ".venv/bin/pip install -c constraints.txt"): "the quick start runs the like",
    ("README.md", "make test           # lint, strict types"): "CI runs it; minutes and more",
}
