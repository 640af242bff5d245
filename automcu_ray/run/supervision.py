"""What a supervisor can be asked for."""

from automcu_ray.core.errors import ConfigError
from automcu_ray.runtime.config import RunConfig
from searchers.engines.base import Engine


def check_supervision(config: RunConfig, asked: Engine | None) -> None:
    """Refuse what would have no effect; `asked` is the engine of the searcher.

    Raises:
        ConfigError: a rule that nothing follows, or shared agents that cannot talk.
    """
    supervisor, warm = config.supervisor, config.warm_start
    if supervisor.enough is not None and config.objective != "accuracy":
        raise ConfigError(
            f"supervisor.enough has no effect where the least {config.objective} is sought: supervisor.patience has."
        )
    if supervisor.agents == "isolated":
        if supervisor.calls is not None:
            raise ConfigError("supervisor.calls limits a shared conversation: set supervisor.agents=shared, too.")
        return
    if supervisor.enough is not None or supervisor.patience is not None:
        raise ConfigError("supervisor.agents is 'shared': the agents decide when it is enough; leave that rule out.")
    if asked is None or not asked.calls_tools or config.writes_code:
        found = "asks no engine" if asked is None else f"asks engine {asked.name!r}"
        raise ConfigError(
            f"supervisor.agents is 'shared', which wants an engine that calls tools and proposes specs or cells; "
            f"searcher {config.searcher.name!r} {'writes code' if config.writes_code else found}: take --searcher llm "
            "with --engine openai, for instance."
        )
    if config.gate == "after":
        raise ConfigError("supervisor.agents is 'shared': the agents ask the toolchain themselves; leave gate out.")
    if config.points_to_evaluate or config.start_from or warm.runs or warm.searcher is not None:
        raise ConfigError(
            "supervisor.agents is 'shared': the agents propose all by themselves; leave points_to_evaluate, "
            "start_from and warm_start out."
        )
