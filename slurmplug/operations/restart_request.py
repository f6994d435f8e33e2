"""What a restart changes in a running job's request, and where the job is to run then. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from policies.plan import Action
from slurmplug.cluster.port import ResourceRequest
from slurmplug.operations import shape, sizes
from slurmplug.operations.request_update import update_fields
from slurmplug.operations.shape import ActionImpossible, PlacedShape
from slurmplug.operations.values import Observation, OperationSettings, RestartFacts


def requested_nodes(action: Action, settings: OperationSettings) -> tuple[str, ...]:
    """The nodes that the policy names, where the site lets it."""
    return action.nodes if settings.placement == "pin" else ()


def excluded_nodes(observation: Observation, row: int, kind: str) -> tuple[str, ...]:
    """The nodes that a job that migrates leaves: those where it runs."""
    return nodes_of(observation, row) if kind == "migrate" else ()


def nodes_of(observation: Observation, row: int) -> tuple[str, ...]:
    """The nodes where the job runs."""
    on = observation.snapshot.runs_on
    return tuple(observation.snapshot.nodes.names[node] for node in sorted(set(on[on[:, 0] == row, 1].tolist())))


def gpus_after(observation: Observation, row: int, action: Action) -> int:
    """The job's GPUs in all once the action is carried out."""
    present = int(observation.snapshot.jobs.gpus[row])
    return present if action.gpus is None or action.kind != "resize" else action.gpus


def requeueable(observation: Observation, row: int) -> ResourceRequest:
    """What the job requested.

    Raises:
        ActionImpossible: it cannot be requeued alone.
    """
    request = observation.requests.get(observation.snapshot.jobs.keys[row].job_id)
    if request is None:
        raise ActionImpossible("not known")
    if request.het_id:
        raise ActionImpossible("heterogeneous")
    if not request.requeue:
        raise ActionImpossible("no requeue")
    if request.reservation:
        raise ActionImpossible("in a reservation")
    return request


def find_place(observation: Observation, row: int, action: Action, settings: OperationSettings) -> PlacedShape:
    """Where the job would run.

    Raises:
        ActionImpossible: there is no room for it.
    """
    return shape.find_place(
        observation,
        row,
        gpus_after(observation, row, action),
        requested=requested_nodes(action, settings),
        excluded=excluded_nodes(observation, row, action.kind),
        node_count=0 if action.kind == "resize" else len(nodes_of(observation, row)),
        time_limit=action.time_limit,
    )


def rewrite_pending(request: ResourceRequest, facts: RestartFacts) -> tuple[dict[str, str], dict[str, str]]:
    """As `rewrite`, for a resize, from what Slurm shows of the job once it is pending.

    While it ran, Slurm showed the nodes, CPUs and memory that it had, which may be more than it requests.

    Raises:
        ActionImpossible: with the reason.
    """
    if facts.nodes_before > request.max_nodes:  # it ran on more, so what is shown as the most is no limit
        request = replace(request, max_nodes=0)
    to = shape.Shape(facts.node_count, facts.gpus // facts.node_count)
    return sizes.with_time_limit(facts.time_limit, request, update_fields(request, to))


def rewrite(
    observation: Observation,
    row: int,
    action: Action,
    place: PlacedShape,
    *,
    settings: OperationSettings,
    restored: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of the update of the requeued job, and of the one that takes it back.

    `restored`: the node lists that its user set, where an earlier operation has set others.

    Raises:
        ActionImpossible: with the reason.
    """
    request = requeueable(observation, row)
    required = restored.get("ReqNodeList", request.required_nodes)
    excluded = restored.get("ExcNodeList", request.excluded_nodes)
    if action.kind == "resize":
        shape.check_limits(observation, row, gpus_after(observation, row, action))
        present = replace(request, max_nodes=request.nodes)  # Slurm does not show the most nodes while it runs
        return sizes.with_time_limit(action.time_limit, request, update_fields(present, place.shape))
    if requested_nodes(action, settings):
        return {"ReqNodeList": ",".join(place.nodes)}, {"ReqNodeList": required}
    if required:
        raise ActionImpossible("kept to nodes")
    both = filter(None, (excluded, *nodes_of(observation, row)))
    return {"ExcNodeList": ",".join(both)}, {"ExcNodeList": excluded}
