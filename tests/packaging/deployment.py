#!/usr/bin/env python3
"""The manifests of packaging/deployment agree with the schemas of manifest_schemas.yaml, which know no other fields, and with
the facts that a schema cannot have: the number of workers, names, ports, volumes. Needs python3-yaml and python3-jsonschema.
Usage: deployment.py"""
import copy
import json
import pathlib
import re
import sys
import unittest

import manifests

FOLDER = manifests.FOLDER
RANK = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def paths(value, path=()):
    """The path of each value within a document."""
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(item, (*path, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def changed(document, path, value):
    """A copy of the document with another value at a path; None removes it."""
    document = copy.deepcopy(document)
    parent = at(document, path[:-1])
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return document


class Schemas(unittest.TestCase):
    def test_each_manifest_has_only_what_its_schema_has(self):
        kinds = set()
        for name, documents in manifests.load().items():
            for document in documents:
                kinds.add(manifests.kind_of(document))
                self.assertEqual(manifests.faults(document), [], name)
        self.assertEqual(kinds, set(manifests.SCHEMAS["kinds"]))

    def test_a_misspelt_field_is_found_wherever_it_is(self):
        free = {"labels", "annotations", "matchLabels", "selector", "limits", "requests"}  # maps with keys of the user's choice
        count = 0
        for documents in manifests.load().values():
            for document in documents:
                for path in paths(document):
                    if path and isinstance(path[-1], str) and not (len(path) > 1 and path[-2] in free):
                        parent = copy.deepcopy(document)
                        fields = at(parent, path[:-1])
                        fields[path[-1] + "s"] = fields.pop(path[-1])
                        self.assertTrue(manifests.faults(parent), path)
                        count += 1
        self.assertGreater(count, 300)

    def test_values_of_another_type_are_found(self):
        job = manifests.load()["indexed-job.yaml"][2]
        container = ("spec", "template", "spec", "containers", 0)
        for path, value in (
            (("spec", "completions"), "4"),
            (("spec", "completionMode"), "indexed"),
            (("apiVersion",), "batch/v1beta1"),
            ((*container, "args", 3), 500),
            ((*container, "env", 0, "value"), 4),
            ((*container, "ports", 0, "containerPort"), 123450),
            ((*container, "name"), None),
            (("spec", "template", "spec", "volumes", 1, "secret", "defaultMode"), 0o1000),
            (("spec", "template", "spec", "restartPolicy"), "Sometimes"),
            (("metadata", "name"), "Mnist"),
        ):
            with self.subTest(path):
                self.assertTrue(manifests.faults(changed(job, path, value)))


class Facts(unittest.TestCase):
    """Facts that a schema cannot have."""

    def test_the_manifests_have_no_fault(self):
        for name, documents in manifests.load().items():
            self.assertEqual(list(facts(documents)), [], name)

    def test_each_fault_is_found(self):
        pod = ("spec", "template", "spec")
        container = (*pod, "containers", 0)
        job_set = ("spec", "replicatedJobs", 0, "template")
        for name, index, path, value, says in (
            ("indexed-job.yaml", 2, ("spec", "completions"), 3, "LOCKSTEP_WORLD_SIZE"),
            ("indexed-job.yaml", 2, ("spec", "parallelism"), 3, "parallelism"),
            ("indexed-job.yaml", 2, ("spec", "completionMode"), "NonIndexed", "Indexed"),
            ("indexed-job.yaml", 2, (*container, "env", 0, "value"), "5", "LOCKSTEP_WORLD_SIZE"),
            ("indexed-job.yaml", 2, (*container, "env", 1, "valueFrom", "fieldRef", "fieldPath"), "metadata.name", "LOCKSTEP_RANK"),
            ("indexed-job.yaml", 2, (*container, "env", 2, "value"), "mnist-1.mnist:12345", "LOCKSTEP_COORDINATOR"),
            ("indexed-job.yaml", 2, (*container, "env", 2, "value"), "mnist-0.mnist:12344", "not a port of the container"),
            ("indexed-job.yaml", 2, (*container, "env", 4, "value"), "12347", "not a port of the container"),
            ("indexed-job.yaml", 2, (*container, "env", 5, "value"), "/secrets/lockstep", "LOCKSTEP_SECRET_FILE"),
            ("indexed-job.yaml", 2, (*pod, "volumes", 1, "secret", "defaultMode"), 0o444, "mode"),
            ("indexed-job.yaml", 2, (*pod, "volumes", 1, "name"), "other", "no volume"),
            ("indexed-job.yaml", 2, (*pod, "volumes", 0, "name"), "secret", "volume"),
            ("indexed-job.yaml", 2, (*pod, "subdomain"), "mnists", "no Service"),
            ("indexed-job.yaml", 2, (*pod, "restartPolicy"), "OnFailure", "podFailurePolicy"),
            ("indexed-job.yaml", 2, ("metadata", "name"), "mnist2", "LOCKSTEP_COORDINATOR"),
            ("indexed-job.yaml", 0, ("spec", "clusterIP"), None, "headless"),
            ("indexed-job.yaml", 0, ("spec", "publishNotReadyAddresses"), False, "publishNotReadyAddresses"),
            ("indexed-job.yaml", 0, ("spec", "selector"), {"batch.kubernetes.io/job-name": "other"}, "selects"),
            ("indexed-job.yaml", 1, ("spec", "podSelector", "matchLabels"), {"batch.kubernetes.io/job-name": "other"}, "selects"),
            ("indexed-job.yaml", 1, ("spec", "ingress", 0, "ports", 1, "port"), 12347, "12346"),
            ("indexed-job.yaml", 1, ("spec", "egress", 0, "ports", 0, "port"), 12347, "12345"),
            ("indexed-job.yaml", 1, ("spec", "egress", 1, "ports", 0, "port"), 54, "DNS"),
            ("jobset.yaml", 0, ("spec", "network", "subdomain"), "mnists", "LOCKSTEP_COORDINATOR"),
            ("jobset.yaml", 0, ("spec", "network", "enableDNSHostnames"), False, "enableDNSHostnames"),
            ("jobset.yaml", 0, ("spec", "replicatedJobs", 0, "name"), "workers", "LOCKSTEP_COORDINATOR"),
            ("jobset.yaml", 0, ("spec", "replicatedJobs", 0, "replicas"), 2, "replicas"),
            ("jobset.yaml", 0, (*job_set, "spec", "completions"), 8, "LOCKSTEP_WORLD_SIZE"),
            ("jobset.yaml", 0, (*job_set, "spec", "podFailurePolicy", "rules", 0, "onExitCodes", "containerName"), "main", "main"),
            ("jobset.yaml", 0, ("spec", "failurePolicy", "rules", 0, "onJobFailureReasons"), ["DeadlineExceeded"], "PodFailurePolicy"),
            ("trainjob.yaml", 1, ("spec", "trainer", "numNodes"), 8, "LOCKSTEP_WORLD_SIZE"),
            ("trainjob.yaml", 1, ("metadata", "name"), "cifar", "LOCKSTEP_COORDINATOR"),
            ("trainjob.yaml", 1, ("spec", "runtimeRef", "name"), "torch", "no runtime"),
            ("trainjob.yaml", 1, ("spec", "runtimeRef", "kind"), "ClusterTrainingRuntime", "no runtime"),
            ("trainjob.yaml", 0, ("spec", "template", "spec", "replicatedJobs", 0, "template", "metadata", "labels"), {}, "trainer"),
            ("trainjob.yaml", 0, ("spec", "template", "spec", "replicatedJobs", 0, "name"), "worker", "node"),
            ("tfjob.yaml", 0, ("spec", "tfReplicaSpecs", "Worker", *container[1:], "name"), "worker", "tensorflow"),
            ("tfjob.yaml", 0, ("spec", "tfReplicaSpecs", "Worker", *container[1:], "ports", 0, "name"), "chief", "tfjob-port"),
            ("tfjob-servers.yaml", 0, ("spec", "tfReplicaSpecs", "PS", *container[1:], "name"), "ps", "of PS is called ps"),
            ("tfjob-servers.yaml", 0, ("spec", "tfReplicaSpecs", "PS", *container[1:], "command"), None, "PS starts None"),
            ("tfjob-servers.yaml", 0, ("spec", "tfReplicaSpecs", "Chief", *container[1:], "command"), ["/mnist_multi_worker"], "Chief starts"),
            ("tfjob-servers.yaml", 0, ("spec", "tfReplicaSpecs", "Chief", *container[1:], "ports", 0, "containerPort"), 2223, "Chief lacks the port"),
            ("tfjob-servers.yaml", 0, ("spec", "tfReplicaSpecs", "Chief", "replicas"), 2, "several chiefs"),
            ("tfjob-servers.yaml", 0, ("spec", "tfReplicaSpecs", "Worker"), None, "no worker"),
            ("tfjob-servers.yaml", 0, ("spec", "tfReplicaSpecs", "PS", "restartPolicy"), "ExitCode", "restarts alone"),
            ("tfjob-servers.yaml", 0, ("spec", "tfReplicaSpecs", "PS", *container[1:], "env", 0, "name"), "LOCKSTEP_RANK", "contradicts"),
        ):
            with self.subTest(name=name, path=path, value=value):
                documents = manifests.load()[name]
                documents[index] = changed(documents[index], path, value)
                found = list(facts(documents))
                self.assertTrue(any(says in fault for fault in found), found)


def variables(container):
    return {entry["name"]: entry.get("value") or entry["valueFrom"].get("fieldRef", {}).get("fieldPath") for entry in container["env"]}


def pod_facts(pod, container):
    """Volumes, ports and settings of one worker."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    env, ports = variables(container), {port["containerPort"] for port in container["ports"]}
    yield from (f"there is no volume {name}, which is mounted at {path}" for path, name in mounts.items() if name not in volumes)
    yield from (f"the volume {name} is not mounted" for name in volumes if name not in mounts.values())
    yield from (f"two volumes have the name {name}" for name in volumes if sum(v["name"] == name for v in pod["volumes"]) > 1)
    secret = pathlib.PurePosixPath(env["LOCKSTEP_SECRET_FILE"]).parent.as_posix()
    source = volumes.get(mounts.get(secret), {}).get("secret")
    if source is None:
        yield f"LOCKSTEP_SECRET_FILE is in {secret}, where no secret is mounted"
    elif source.get("defaultMode", 0o644) & 0o077:
        yield "the secret's mode lets others read it, which lockstep refuses"
    for argument in container.get("args", ()):
        if argument.startswith("/") and not any(argument.startswith(path + "/") for path in mounts):
            yield f"{argument} is not in a volume"
    if "--checkpoint" in container.get("args", ()) and "--resume" not in container["args"]:
        yield "a restarted worker does not resume"
    if int(env["LOCKSTEP_DATA_PORTS"]) not in ports:
        yield f"LOCKSTEP_DATA_PORTS {env['LOCKSTEP_DATA_PORTS']} is not a port of the container"
    if env.get("LOCKSTEP_COORDINATOR") and int(env["LOCKSTEP_COORDINATOR"].rpartition(":")[2]) not in ports:
        yield f"LOCKSTEP_COORDINATOR {env['LOCKSTEP_COORDINATOR']} is not a port of the container"


def rank_facts(container, workers, chief):
    env = variables(container)
    if env["LOCKSTEP_WORLD_SIZE"] != str(workers):
        yield f"LOCKSTEP_WORLD_SIZE is {env['LOCKSTEP_WORLD_SIZE']}, but there are {workers} pods"
    if env["LOCKSTEP_RANK"] != RANK:
        yield f"LOCKSTEP_RANK is {env['LOCKSTEP_RANK']}, not the pod's index"
    if env["LOCKSTEP_COORDINATOR"].rpartition(":")[0] != chief:
        yield f"LOCKSTEP_COORDINATOR is {env['LOCKSTEP_COORDINATOR']}, but the first pod is {chief}"


def job_facts(spec):
    """Counts and restarts of a Job."""
    if spec.get("completionMode", "Indexed") != "Indexed":
        yield "the Job is not Indexed"
    if spec.get("parallelism") != spec.get("completions"):
        yield "parallelism differs from completions: not all workers run at once"
    pod = spec["template"]["spec"]
    if spec.get("podFailurePolicy") and pod["restartPolicy"] != "Never":
        yield "podFailurePolicy needs restartPolicy: Never"
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        name = rule.get("onExitCodes", {}).get("containerName")
        if name and name not in {container["name"] for container in pod["containers"]}:
            yield f"podFailurePolicy names the container {name}, which the pod lacks"


def set_facts(spec):
    """Restarts of a JobSet: it fails at once exactly where the policy of its Job does."""
    policies = [rule["action"] for job in spec["replicatedJobs"] for rule in job["template"]["spec"]["podFailurePolicy"]["rules"]]
    reasons = [reason for rule in spec["failurePolicy"]["rules"] for reason in rule["onJobFailureReasons"]]
    if ("FailJob" in policies) != ("PodFailurePolicy" in reasons):
        yield f"the Job's policies are {policies}, but PodFailurePolicy is not among the JobSet's reasons {reasons}"
    if any(job.get("replicas", 1) != 1 for job in spec["replicatedJobs"]):
        yield "replicas is not 1: an index is unique only within one Job"


def job(documents):
    service, policy, job = documents
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    yield from job_facts(spec)
    yield from pod_facts(pod, container)
    yield from rank_facts(container, spec["completions"], f"{name}-0.{pod['subdomain']}")
    if pod["subdomain"] != service["metadata"]["name"]:
        yield f"there is no Service {pod['subdomain']}, which is the pods' subdomain"
    if service["spec"].get("clusterIP") != "None":
        yield "the Service is not headless: pods have no names"
    if not service["spec"].get("publishNotReadyAddresses"):
        yield "publishNotReadyAddresses is not set"
    label = {"batch.kubernetes.io/job-name": name}
    ports = {port["containerPort"] for port in container["ports"]}
    if {port["port"] for port in service["spec"]["ports"]} != ports:
        yield f"the Service's ports are not {ports}"
    rules = policy["spec"]["ingress"][0], policy["spec"]["egress"][0]
    for where, selector in (("the Service", service["spec"]["selector"]),
                            ("the NetworkPolicy", policy["spec"]["podSelector"]["matchLabels"]),
                            ("its ingress", rules[0]["from"][0]["podSelector"]["matchLabels"]),
                            ("its egress", rules[1]["to"][0]["podSelector"]["matchLabels"])):
        if selector != label:
            yield f"{where} selects {selector}, not the pods of the job"
    for rule in rules:
        for port in sorted(ports - {port["port"] for port in rule["ports"]}):
            yield f"the NetworkPolicy does not let port {port} through"
    if {(p["protocol"], p["port"]) for p in policy["spec"]["egress"][1]["ports"]} != {("UDP", 53), ("TCP", 53)}:
        yield "the NetworkPolicy does not let DNS through"


def job_set(documents):
    (document,) = documents
    name, spec = document["metadata"]["name"], document["spec"]
    worker = spec["replicatedJobs"][0]
    job = worker["template"]["spec"]
    pod = job["template"]["spec"]
    yield from set_facts(spec)
    yield from job_facts(job)
    yield from pod_facts(pod, pod["containers"][0])
    yield from rank_facts(pod["containers"][0], job["completions"], f"{name}-{worker['name']}-0-0.{spec['network']['subdomain']}")
    if not spec["network"]["enableDNSHostnames"]:
        yield "without enableDNSHostnames pods have no names"


def train_job(documents):
    runtime, job = documents
    reference, trainer = job["spec"]["runtimeRef"], job["spec"]["trainer"]
    if (reference["kind"], reference["name"]) != (runtime["kind"], runtime["metadata"]["name"]):
        yield f"there is no runtime {reference['kind']} {reference['name']}"
    spec = runtime["spec"]["template"]["spec"]
    node = spec["replicatedJobs"][0]
    if node["template"]["metadata"]["labels"].get("trainer.kubeflow.org/trainjob-ancestor-step") != "trainer":
        yield "the runtime's Job lacks the label by which a trainer is found"
    pod = node["template"]["spec"]["template"]["spec"]
    if node["name"] != "node" or pod["containers"][0]["name"] != "node":
        yield "the runtime's Job and container are not called node"
    # As the controller does: a TrainJob's values replace those of the container.
    container = {**pod["containers"][0], "args": trainer["args"], "env": pod["containers"][0]["env"] + trainer["env"]}
    yield from set_facts(spec)
    yield from job_facts(node["template"]["spec"])
    yield from pod_facts(pod, container)
    name = job["metadata"]["name"]
    yield from rank_facts(container, trainer["numNodes"], f"{name}-{node['name']}-0-0.{name}")


def tf_config(job, kind, index, namespace="default"):
    """The TF_CONFIG of a pod, as genTFConfigJSONStr of the operator makes it: Go sorts the keys of a map."""
    name, replicas = job["metadata"]["name"], job["spec"]["tfReplicaSpecs"]

    def port(replica):
        (container,) = (c for c in replica["template"]["spec"]["containers"] if c["name"] == "tensorflow")
        return next(p["containerPort"] for p in container["ports"] if p["name"] == "tfjob-port")

    cluster = {k.lower(): [f"{name}-{k.lower()}-{i}.{namespace}.svc:{port(replica)}" for i in range(replica["replicas"])]
               for k, replica in sorted(replicas.items(), key=lambda item: item[0].lower())}
    return json.dumps({"cluster": cluster, "task": {"type": kind.lower(), "index": index}, "environment": "cloud"}, separators=(",", ":"))


def tf_job(documents):
    (document,) = documents
    replicas = document["spec"]["tfReplicaSpecs"]
    program = ["/mnist_parameter_server"] if "PS" in replicas else None
    if "Worker" not in replicas:
        yield "there is no worker"
    if replicas.get("Chief", {}).get("replicas", 1) != 1:
        yield "there are several chiefs"
    for kind, replica in replicas.items():
        pod = replica["template"]["spec"]
        container = pod["containers"][0]
        yield from pod_facts(pod, container)
        if container["name"] != "tensorflow":
            yield f"the container of {kind} is called {container['name']}, but TF_CONFIG is set in tensorflow"
        if {"name": "tfjob-port", "containerPort": 2222} not in container["ports"]:
            yield f"the container of {kind} lacks the port tfjob-port"
        if set(variables(container)) & {"LOCKSTEP_WORLD_SIZE", "LOCKSTEP_RANK", "LOCKSTEP_COORDINATOR"}:
            yield "a variable contradicts TF_CONFIG"
        if container.get("command") != program:
            yield f"{kind} starts {container.get('command')}, not {program}"
        if replica["restartPolicy"] != "Never":
            yield f"{kind} restarts alone, but a lost process ends all others"


def facts(documents):
    """Faults of the documents of a file, apart from their form."""
    check = {"Job": job, "JobSet": job_set, "TrainJob": train_job, "TFJob": tf_job}[documents[-1]["kind"]]
    yield from check(documents)


class Operator(unittest.TestCase):
    def test_the_unit_test_of_tf_config_has_what_the_operator_makes_of_the_manifest_with_servers(self):
        (job,) = manifests.load()["tfjob-servers.yaml"]
        source = (FOLDER.parents[1] / "tests/unit/cluster/description/tf_config.cpp").read_text("utf-8")
        source = re.sub(r'\)"\s+R"\(', "", source)  # the compiler joins adjacent strings
        cluster = json.loads(tf_config(job, "PS", 1))["cluster"]
        self.assertEqual({kind: len(members) for kind, members in cluster.items()}, {"chief": 1, "worker": 4, "ps": 2})
        text = json.dumps(cluster, separators=(",", ":"))
        self.assertIn(f'R"({text})"', source)
        self.assertEqual(tf_config(job, "PS", 1), f'{{"cluster":{text},"task":{{"type":"ps","index":1}},"environment":"cloud"}}')


class Image(unittest.TestCase):
    def test_the_manifests_name_one_image_whose_program_exists(self):
        text = "".join(path.read_text() for path in FOLDER.glob("*.yaml"))
        self.assertEqual(set(re.findall(r"image: (\S+)", text)), {"registry.example/mnist-multi-worker:1"})
        dockerfile = (FOLDER / "Dockerfile").read_text()
        built = re.search(r"for name in ([\w -]+); do /lockstep/dev static \$name ", dockerfile)[1].split()
        self.assertEqual(sorted(built), ["lockstep-doctor", "mnist_multi_worker", "mnist_parameter_server"])
        self.assertEqual(sorted(re.findall(r"COPY --from=build /lockstep/build/static/(\S+) /\n", dockerfile)), sorted(built))
        self.assertTrue(dockerfile.endswith('ENTRYPOINT ["/mnist_multi_worker"]\n'), dockerfile)
        commands = set(re.findall(r"command: \[/([\w-]+)\]", text))
        self.assertEqual(commands, {"mnist_parameter_server"})
        self.assertIn("build\n", (FOLDER / "Dockerfile.dockerignore").read_text())


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
