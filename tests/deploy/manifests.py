#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether deploy/kubernetes fits the worker: flags, port, probes, metrics, selectors, times.

usage: manifests.py --server FILE --fake FILE --deploy DIR

Without PyYAML: exit status 77.
"""
import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "http"))
from worker import Worker, get  # noqa: E402

try:
    import yaml
except ImportError:
    print("skipped: there is no PyYAML")
    sys.exit(77)

failures = []
checks = 0


def check(name, passed, *found):
    global checks
    checks += 1
    if not passed:
        failures.append(name)
        print("FAILED", name, *found)


class UniqueKeys(yaml.SafeLoader):
    """A key that is there twice is a mistake, which YAML readers hide."""


def mapping(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(keys) == len(set(keys)), keys
    return dict(zip(keys, (loader.construct_object(value, deep=True) for _, value in node.value)))


UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def documents(folder):
    """{(kind, name): document}; a kind of one name is there once."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.load_all(path.read_text(encoding="utf-8"), UniqueKeys):
            key = document["kind"], document["metadata"]["name"]
            check(f"{key} is there once", key not in found)
            found[key] = document
    return found


def seconds(arguments, flag):
    return float(next(argument.split("=")[1] for argument in arguments if argument.startswith(flag + "=")))


def main():
    parser = argparse.ArgumentParser()
    for name in ("server", "fake", "deploy"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    found = documents(pathlib.Path(options.deploy) / "kubernetes")
    for kind in ("Deployment", "Service", "PodDisruptionBudget", "PodMonitor", "HorizontalPodAutoscaler"):
        check(f"a {kind}", (kind, "cua-server") in found, list(found))

    deployment = found["Deployment", "cua-server"]["spec"]
    pod = deployment["template"]
    labels = pod["metadata"]["labels"]
    container, = pod["spec"]["containers"]
    arguments = container["args"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}

    for name, selector in (("Deployment", deployment["selector"]["matchLabels"]),
                           ("Service", found["Service", "cua-server"]["spec"]["selector"]),
                           ("PodDisruptionBudget", found["PodDisruptionBudget", "cua-server"]["spec"]["selector"]["matchLabels"]),
                           ("PodMonitor", found["PodMonitor", "cua-server"]["spec"]["selector"]["matchLabels"])):
        check(f"{name} selects the pods", selector and selector.items() <= labels.items(), selector, labels)
    target = found["HorizontalPodAutoscaler", "cua-server"]["spec"]["scaleTargetRef"]
    check("the autoscaler's target", target == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cua-server"}, target)
    check("the autoscaler alone counts", "replicas" not in deployment)

    help_text = subprocess.run([options.server, "--help"], capture_output=True, text=True, check=True).stdout
    flags = {argument.split("=")[0] for argument in arguments}
    for flag in flags:
        check(f"the worker has {flag}", re.search(rf"^  {flag}\b", help_text, re.MULTILINE) is not None)
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    check("the model is mounted", mounts.get(next(a.split("=")[1] for a in arguments if a.startswith("--model="))) in volumes)
    check("the port is the worker's", f"--port={ports['http']}" in arguments, arguments, ports)
    check("the service's port", found["Service", "cua-server"]["spec"]["ports"][0]["targetPort"] in ports)

    stop = container["lifecycle"]["preStop"]["exec"]["command"]
    took = float(stop[1]) + seconds(arguments, "--drain-delay") + seconds(arguments, "--shutdown-timeout")
    check("there is time to end", stop[0] == "sleep" and pod["spec"]["terminationGracePeriodSeconds"] > took, took)
    ready = container["readinessProbe"]
    check("the drain outlasts the probe",
          seconds(arguments, "--drain-delay") > ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"])

    # The arguments themselves, but for what this machine lacks.
    here = [a for a in arguments if a.split("=")[0] not in ("--model", "--port", "--host")]
    with Worker(options.server, options.fake, "x", *here) as worker:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            check(f"{probe} is answered", container[probe]["httpGet"]["port"] in ports
                  and worker.exchange(get(path)).status == 200, path)
        metrics = worker.metrics()
        for metric in found["HorizontalPodAutoscaler", "cua-server"]["spec"]["metrics"]:
            check("the autoscaler's metric", metric["pods"]["metric"]["name"] in metrics, metric)
        for endpoint in found["PodMonitor", "cua-server"]["spec"]["podMetricsEndpoints"]:
            check("the monitor's path", endpoint["port"] in ports and worker.exchange(get(endpoint["path"])).status == 200)
    print(f"{checks - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
