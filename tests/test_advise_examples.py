"""The manifests that hand a floor to other autoscalers agree with mark's metrics and their projects' documents."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from mark.api.wanted import floor_metrics
from mark.cli.main import parser
from mark.control.floor import Floor
from mark.domain.errors import BadInput
from mark.launch.listening import ListenOptions

FOLDER = Path(__file__).parents[1] / "examples" / "advise"
(METRIC, *_) = (family.name for family in floor_metrics([Floor("ranker", "c7i.large/on-demand", 3, "", 0.1, 1.0)]))


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def in_cluster() -> dict[str, dict[str, Any]]:
    """The objects of deployment.yaml by kind."""
    return {one["kind"]: one for one in documents("deployment.yaml")}


def container() -> dict[str, Any]:
    (found,) = in_cluster()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_keda_asks_mark_for_a_number_of_replicas() -> None:
    authentication, scaled = documents("keda.yaml")
    own, floor = scaled["spec"]["triggers"]
    assert (own["type"], floor["type"]) == ("prometheus", "metrics-api")
    service = in_cluster()["Service"]
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}"
    assert floor["metadata"] == {
        "url": f"https://{host}:{service['spec']['ports'][0]['port']}/wanted/ranker",
        "valueLocation": "value", "targetValue": "1", "authMode": "bearer",
    }  # fmt: skip
    assert floor["authenticationRef"]["name"] == authentication["metadata"]["name"]
    token, ca = authentication["spec"]["secretTargetRef"]
    assert (token["parameter"], ca["parameter"]) == ("token", "ca")
    assert token["name"] == in_cluster()["Secret"]["metadata"]["name"]
    assert token["key"] in in_cluster()["Secret"]["stringData"]


def test_keda_reads_the_floor_from_prometheus() -> None:
    (scaled,) = documents("keda_prometheus.yaml")
    floor = scaled["spec"]["triggers"][1]["metadata"]
    assert floor["query"] == f'max({METRIC}{{service="ranker"}})'
    assert floor["threshold"] == "1"


@pytest.mark.parametrize("name", ["keda.yaml", "keda_prometheus.yaml"])
def test_absent_floor_gives_the_old_minimum_back_in_keda(name: str) -> None:
    """KEDA's fallback counts errors; a null value that is ignored is none."""
    spec = documents(name)[-1]["spec"]
    assert spec["minReplicaCount"] < spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    for trigger in spec["triggers"]:
        # KEDA takes strings only as metadata.
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
    floor = spec["triggers"][1]
    assert floor["type"] == "metrics-api" or floor["metadata"]["ignoreNullValues"] == "false"


def test_floor_a_little_above_the_present_count_is_followed() -> None:
    """The default tolerance is 10 %."""
    scaled = [documents(name)[-1]["spec"]["advanced"] for name in ("keda.yaml", "keda_prometheus.yaml")]
    behaviors = [one["horizontalPodAutoscalerConfig"]["behavior"] for one in scaled]
    for behavior in (*behaviors, documents("hpa.yaml")[0]["spec"]["behavior"]):
        assert behavior == {"scaleUp": {"tolerance": 0}}


def test_scrape_keeps_the_label_service_and_its_absence_is_an_alert() -> None:
    monitor, rule = documents("prometheus.yaml")
    service, secret = in_cluster()["Service"], in_cluster()["Secret"]
    assert service["metadata"]["labels"].items() >= monitor["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["name"] == secret["metadata"]["name"]
    assert credentials["key"] in secret["stringData"]
    ((alert,),) = (group["rules"] for group in rule["spec"]["groups"])
    assert alert["expr"] == f'absent({METRIC}{{service="ranker"}})'


def test_deployment_starts_mark_with_keys_of_the_scopes(tmp_path: Path) -> None:
    """The key file and the certificate stand where the volumes have them; placeholders are refused."""
    cluster, wanted = in_cluster(), container()
    args = parser("advise").parse_args(wanted["args"])
    volumes = {one["name"]: one for one in cluster["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    mounts = {one["mountPath"]: volumes[one["name"]] for one in wanted["volumeMounts"]}
    assert [item["path"] for item in mounts[str(args.keys.parent)]["secret"]["items"]] == [args.keys.name]
    assert mounts[str(args.keys.parent)]["secret"]["secretName"] == cluster["Secret"]["metadata"]["name"]
    assert {args.tls_cert.name, args.tls_key.name} == {"tls.crt", "tls.key"}
    tls = mounts[str(args.tls_cert.parent)]["secret"]["secretName"]
    assert tls == documents("keda.yaml")[0]["spec"]["secretTargetRef"][1]["name"]
    claim = mounts[str(args.state.parent)]["persistentVolumeClaim"]["claimName"]
    assert claim == cluster["PersistentVolumeClaim"]["metadata"]["name"]
    host, port = args.listen
    assert port == cluster["Service"]["spec"]["ports"][0]["port"] == wanted["ports"][0]["containerPort"]

    issued = trustme.CA().issue_cert("mark-advise.shop")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    issued.private_key_pem.write_to_path(tmp_path / "tls.key")
    secret = cluster["Secret"]["stringData"]
    keys = tmp_path / "keys"
    listening = ListenOptions(host=host, keys=keys, tls_cert=tmp_path / "tls.crt", tls_key=tmp_path / "tls.key")
    for file in (keys, tmp_path / "tls.key"):
        file.touch()
        file.chmod(0o600)
    keys.write_text(secret["keys"])
    with pytest.raises(BadInput, match="16 or more"):
        listening.access()
    keys.write_text(secret["keys"].replace("change-me-", "0123456789abcdef"))
    _, auth = listening.access()
    assert auth is not None
    for name, scope in (("token", "read"), ("metrics-token", "metrics")):
        token = secret[name].replace("change-me-", "0123456789abcdef")
        granted = auth.grant({b"authorization": f"Bearer {token}".encode()})
        assert granted is not None
        assert granted.scopes == {scope}


def test_horizontal_pod_autoscaler_reads_the_floor_as_an_external_metric() -> None:
    (scaler,) = documents("hpa.yaml")
    external = scaler["spec"]["metrics"][1]["external"]
    assert external["metric"]["name"] == METRIC
    assert external["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert METRIC in (FOLDER / "hpa.yaml").read_text().split("apiVersion")[0]


def test_nodes_are_of_the_planned_type() -> None:
    pool, buffer = documents("karpenter.yaml")
    requirements = {one["key"]: one["values"] for one in pool["spec"]["template"]["spec"]["requirements"]}
    assert requirements == {
        "node.kubernetes.io/instance-type": ["c7i.large"], "karpenter.sh/capacity-type": ["on-demand"],
    }  # fmt: skip
    assert buffer["spec"]["scalableRef"] == {"apiGroup": "apps", "kind": "Deployment", "name": "ranker"}


@pytest.mark.parametrize(("floor", "least"), [(None, 2), (0, 2), (1, 2), (5, 5), (99, 10)])
def test_ray_keeps_its_own_minimum_and_maximum(floor: int | None, least: int) -> None:
    raised = runpy.run_path(str(FOLDER / "ray_min_replicas.py"))["raised"]
    scaling = {"min_replicas": 2, "max_replicas": 10}
    config = {"applications": [{"name": "app", "deployments": [{"name": "D", "autoscaling_config": scaling}]}]}
    found = raised(config, "app", "D", floor)
    assert found["applications"][0]["deployments"][0]["autoscaling_config"] == {
        "min_replicas": least,
        "max_replicas": 10,
    }
    assert scaling["min_replicas"] == 2


def test_ray_reads_no_floor_where_mark_does_not_answer() -> None:
    assert runpy.run_path(str(FOLDER / "ray_min_replicas.py"))["wanted"]("http://127.0.0.1:9/wanted") is None
