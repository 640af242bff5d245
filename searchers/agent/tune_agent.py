"""The Ray Tune searcher of the arena: an agent's attempts, one trial each, its journal, and what they came to."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from automcu_ray.records.attempt import Attempt, Observation
from automcu_ray.records.events import AttemptMade, AttemptObserved
from automcu_ray.records.journal import Repository

METRIC = "score"
ENGINE_FAILURES = 3  # one after the other; then nothing more is tried

Play = Callable[[int, list[Observation], Path], Attempt]


class AgentSearcher(Searcher):  # type: ignore[misc]
    """Hands out one artifact after the other; the agent plays in a thread, so that Tune's loop turns.

    The journal is the truth: what it holds is neither played nor judged again, and an artifact that was submitted and
    not judged is judged from its folder.

    Args:
        play: plays one attempt: its number, the observations so far, the folder that keeps it.
        attempts: the budget T.
        repository: the journal.
        folder: keeps `iteration_t/` of each attempt.
        stopped: says that a signal has come, which Tune's loop does not look at while it waits for a trial.
    """

    def __init__(
        self,
        play: Play,
        *,
        attempts: int,
        repository: Repository,
        folder: Path,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(metric=METRIC, mode="max")
        self.play, self.attempts, self.repository, self.folder = play, attempts, repository, folder
        self.stopped = stopped
        self.gave_up = ""  # why nothing more will be tried, where the budget is not used up
        self._live: dict[str, int] = {}
        self._playing: threading.Thread | None = None
        self._outcome: Attempt | BaseException | None = None

    @property
    def observations(self) -> list[Observation]:
        """What became of the attempts so far."""
        newest = {event.observation.attempt: event.observation for event in self.repository.all(AttemptObserved)}
        return list(newest.values())

    @property
    def made(self) -> list[Attempt]:
        """What the agent did in them."""
        return [event.attempt for event in self.repository.all(AttemptMade)]

    @property
    def exhausted(self) -> bool:
        """Whether all attempts are judged, or no more can be made."""
        return bool(self.gave_up) or (self._waiting() is None and len(self.made) >= self.attempts)

    def kept(self, number: int) -> Path:
        """Return the folder that keeps an attempt."""
        return self.folder / f"iteration_{number}"

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self.exhausted or self.stopped():
            return str(Searcher.FINISHED)
        if self._live:
            return None
        waiting = self._waiting()
        if waiting is None:
            self._pump()
            return None
        self._live[trial_id] = waiting.number
        kept = self.kept(waiting.number)
        return {
            "attempt": waiting.number,
            "artifact": str(kept / "artifact"),
            "workdir": str(kept / f"work-{time.time_ns()}"),
        }

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        number = self._live.pop(trial_id, None)
        if number is None:
            return
        if error or not result or "observation" not in result:
            found = Observation(attempt=number, infrastructure="the trial's worker died")
        else:
            found = Observation.model_validate_json(result["observation"])  # text, for Tune flattens what is nested
        self.repository.append(AttemptObserved(observation=found))
        if found.infrastructure:
            self.gave_up = f"attempt {number} could not be judged: {found.infrastructure}"

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text("")  # the journal has it all

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the journal has been read."""

    def _waiting(self) -> Attempt | None:
        """Return an attempt that is to be judged, for the first time or since the boards failed it."""
        judged = {one.attempt for one in self.observations if not one.infrastructure}
        return next((one for one in self.made if one.number not in judged and one.ended != "engine failed"), None)

    def _pump(self) -> None:
        if self._playing is None:
            number = len(self.made) + 1
            self._playing = threading.Thread(target=self._play, args=(number,), name="agent", daemon=True)
            self._playing.start()
            return
        if self._playing.is_alive():
            return
        self._playing, outcome = None, self._outcome
        if not isinstance(outcome, Attempt):
            self.gave_up = f"the agent broke: {type(outcome).__name__}: {outcome}"[:300]
            return
        self.repository.append(AttemptMade(attempt=outcome))
        last = self.made[-ENGINE_FAILURES:]
        if len(last) == ENGINE_FAILURES and all(one.ended == "engine failed" for one in last):
            self.gave_up = f"the engine failed {ENGINE_FAILURES} times in a row"

    def _play(self, number: int) -> None:
        try:
            self._outcome = self.play(number, self.observations, self.kept(number))
        except BaseException as error:  # it must cost the run's rest, not Tune's loop
            self._outcome = error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "play": None, "stopped": None, "_playing": None, "_outcome": None}
