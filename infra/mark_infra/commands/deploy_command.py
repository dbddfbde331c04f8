"""mark deploy: services on AWS, by Terraform."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from mark.cli.arguments import Listed, from_args
from mark.cli.numbers import above_zero, count, port
from mark.cli.output import progress, show
from mark.config.site_services import site_pipelines, site_services
from mark.domain.errors import BadInput, Infeasible, MarkError
from mark.studies.report.monthly import monthly_report
from mark.studies.report.quotas import quota_report
from mark_infra.deploy.deploy import Planned, destroy, plan, policies, site_conductors, site_releases
from mark_infra.deploy.first_answer import first_answers, status_of
from mark_infra.deploy.releases import RolloutNews
from mark_infra.deploy.shipments import shipments
from mark_infra.deploy.target import DeployTarget


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Put services on AWS: network, load balancer, controller, functions, alarms. Shows first what it "
        "would do and what that costs a month, then asks. Deploying again applies only the changes."
    )
    parser.add_argument("services", nargs="*", metavar="SERVICE", help="service or pipeline file, or a shipped name")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="show plan and bill, change nothing")
    what.add_argument("--rollback", action="store_true", help="serve the release before again, of these services")
    what.add_argument("--destroy", action="store_true", help="end everything of the site, instances included")
    what.add_argument("--print-policy", action="store_true", help="the rights that this needs, as policies of IAM")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-wait", action="store_true", help="do not wait until the new release serves")
    where = parser.add_argument_group("where")
    where.add_argument("--name", default="mark", metavar="SITE", help="the site's name (default: mark)")
    where.add_argument("--profile", metavar="NAME", help="profile of AWS's configuration (default: $AWS_PROFILE)")
    where.add_argument(
        "--region", default="", metavar="R", help="region of AWS (default: $AWS_REGION, the profile's, the site's)"
    )
    where.add_argument(
        "--zones",
        action=Listed,
        default=(),
        metavar="A,B",
        help="availability zones (default: the region's first three)",
    )
    where.add_argument(
        "--cidr", metavar="A.B.0.0/16", help="addresses of the VPC, once for all (default: 10.42.0.0/16)"
    )
    where.add_argument(
        "--state", type=Path, metavar="DIR", help="folder for the site's state (default: .mark-deploy/SITE)"
    )
    where.add_argument("--state-bucket", metavar="BUCKET", help="keep Terraform's state in this S3 bucket")
    where.add_argument(
        "--emulated", action="store_true", help="$AWS_ENDPOINT_URL is an emulator: leave out the services that it lacks"
    )
    boot = parser.add_argument_group("the instances' machine images")
    boot.add_argument("--cpu-index", metavar="URL", help="index of wheels without GPU code (torch's, say)")
    boot.add_argument("--newest-images", action="store_true", help="Amazon's newest machine images, not the site's")
    boot.add_argument("--bake", action="store_true", help="first bake an image with everything installed: faster boots")
    boot.add_argument("--max-disk", type=count, metavar="GIB", help="refuse a service that needs a larger disk")
    door = parser.add_argument_group("access and alarms")
    door.add_argument("--certificate", metavar="ARN", help="certificate of the load balancer (ACM)")
    door.add_argument("--grpc-port", type=port, metavar="P", help="gRPC at this port as well; needs --certificate")
    door.add_argument("--domain", metavar="NAME", help="name in the certificate, by which clients come")
    door.add_argument("--hosted-zone", metavar="ID", help="zone of Route 53 in which it is made to point there")
    door.add_argument("--clients", action=Listed, metavar="CIDR", help="network of clients (default: all, with TLS)")
    door.add_argument("--alarm-email", metavar="ADDRESS", help="where alarms are sent")
    door.add_argument("--budget", type=above_zero, metavar="USD", help="tell of an account's month beyond this")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.destroy and args.services:
        raise BadInput("ends the whole site: name no service", "--destroy", ", ".join(args.services))
    if args.budget is not None and args.alarm_email is None:
        raise BadInput("needs an address for alarms: --alarm-email", "--budget")
    clients = tuple(args.clients or ("0.0.0.0/0",))
    target = from_args(
        DeployTarget, args, clients=clients, budget_usd=args.budget, max_disk_gib=args.max_disk, session=None
    )
    try:
        if args.print_policy:
            print(json.dumps(policies(target), indent=2))
            return 0
        with _ended_as_by_an_interrupt():
            if args.rollback:
                return _roll_back(target, args)
            return _destroy(target, args) if args.destroy else _deploy(target, args)
    except (BadInput, Infeasible):
        raise
    except MarkError as error:
        # An error of Terraform, pip or AWS, not of mark.
        print(f"mark: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1


@contextmanager
def _ended_as_by_an_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like an interrupt, so that begun work ends in order. Ignored signals stay ignored."""
    ends = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ends:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)


def _deploy(target: DeployTarget, args: argparse.Namespace) -> int:
    planned = plan([one for service in args.services for one in shipments(service)], target, _say)
    show(quota_report(planned.quotas))
    show(monthly_report(planned.charges))
    print(_changes(planned), flush=True)
    if args.dry_run:
        return 0
    if (planned.changes or planned.to_bake) and not _agreed(args, "apply"):
        return 0
    with progress("deploying") as bar:
        deployed = planned.apply(None if bar is None else lambda share, _: bar(share))
    by_address: defaultdict[str, list[str]] = defaultdict(list)
    for name, address in sorted(deployed.addresses.items()):
        by_address[address].append(name)
    for address, names in by_address.items():
        print(f"requests to   {address}" + (f" for {', '.join(names)}" if len(by_address) > 1 else ""))
    for domain, name in deployed.cnames.items():
        print(f"to be set     {domain} CNAME {name}")
    print(f"keys          {deployed.keys_file}")
    print(f"site file     {deployed.site_file}", flush=True)
    releases = site_releases(target)
    releases.roll_out(deployed.services)
    if args.no_wait:
        return 0
    rolled_out = _told(releases.news(deployed.services))
    if target.emulated:
        return rolled_out
    answering = set()
    # Ask the balancer by its own name, because the domain's owner may point the domain there only tomorrow.
    at = {urlsplit(address).hostname: deployed.balancers.get(name) for name, address in deployed.addresses.items()}
    for service, waited_s in first_answers(deployed.addresses, lambda url: status_of(url, at[urlsplit(url).hostname])):
        answering.add(service)
        print(f"{service}: answers, {waited_s:.0f} s later", flush=True)
    if silent := sorted(set(deployed.addresses) - answering):
        print(f"no answer yet from {', '.join(silent)}: mark controller's page and the logs say why", flush=True)
    return rolled_out or bool(silent)


def _roll_back(target: DeployTarget, args: argparse.Namespace) -> int:
    if not args.services:
        raise BadInput("say which services", "SERVICE")
    services, releases = [one.name for one in site_services(args.services)], site_releases(target)
    # Read this first, because a release's predecessor changes as soon as the controller hears of the roll-back.
    stages = {one.name: one.bought_services()[0].name for one in site_pipelines(args.services)}
    before = {pipeline: releases.before(stage) for pipeline, stage in stages.items()}
    if not _agreed(args, f"take back the release of {', '.join(services)}"):
        return 0
    releases.roll_back(services)
    for pipeline, template in before.items():
        if template is not None:
            print(f"{pipeline}: {site_conductors(target).take_back(pipeline, template)}", flush=True)
    return 0 if args.no_wait else _told(releases.news(services, back=True))


def _told(news: Iterable[RolloutNews]) -> int:
    """Print the progress of roll-outs; return 1 if any failed or has not settled."""
    last: dict[str, RolloutNews] = {}
    for one in news:
        last[one.service] = one
        print(f"{one.service}: {one.text}", flush=True)
    left = [name for name, one in sorted(last.items()) if not one.settled]
    if left:
        print(f"still not settled: {', '.join(left)}; the controller goes on", flush=True)
    return 0 if all(one.settled and one.good for one in last.values()) else 1


def _destroy(target: DeployTarget, args: argparse.Namespace) -> int:
    if not _agreed(args, f"end everything of site {target.name}"):
        return 0
    with progress("ending") as bar:
        left = destroy(target, _say, None if bar is None else lambda share, _: bar(share))
    for one in left:
        print(f"left behind: {one}")
    print(f"site {target.name} is gone" if not left else f"{len(left)} things are left", flush=True)
    return 1 if left else 0


def _changes(planned: Planned) -> str:
    images = [f"{one.service} on a {one.types[0]}" for one in planned.to_bake if one.types]
    baked = f"images to bake first: {', '.join(images)}\n" if images else ""
    if not planned.changes:
        return f"{baked}nothing else to change" if baked else "nothing to change"
    actions = Counter(change.action for change in planned.changes)
    said = ", ".join(f"{count} to {action}" for action, count in sorted(actions.items()))
    return f"{baked}{said}; all of it in {planned.target.folder / 'plan.txt'}"


def _agreed(args: argparse.Namespace, what: str) -> bool:
    if args.yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(f"there is no terminal to ask whether to {what}", "--yes")
    agreed = input(f"{what}? [y/N] ").strip().lower() in ("y", "yes")
    if not agreed:
        print("nothing was changed")
    return agreed


def _say(text: str) -> None:
    print(f"mark: {text}", file=sys.stderr, flush=True)
