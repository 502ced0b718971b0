"""One search for bench/tuning.py, warm: `search.py plain|SLOTS DATASET JSON`.

Without a seed the network's 16 given sets of values are tried; with one, TPE chooses trees.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna

from trainyard.dataset import Dataset
from trainyard.specs import Tune

EPOCHS = 8
ROUNDS = 30
TREE_TRIALS = 24
GRID: dict[str, Any] = {
    "learning_rate": {"choices": [0.003, 0.01, 0.03, 0.06]},
    "batch_size": {"choices": [32, 64, 128, 256]},
}
TREES: dict[str, Any] = {
    "learning_rate": {"low": 0.03, "high": 0.6, "log": True},
    "max_depth": {"low": 1, "high": 8},
    "booster_params.min_child_weight": {"low": 0.5, "high": 20.0, "log": True},
    "booster_params.reg_lambda": {"low": 0.1, "high": 20.0, "log": True},
}


def spec_of(directory: str, dataset: str, seed: int | None, **more: Any) -> Tune:
    """The search."""
    given: dict[str, Any] = {"run_dir": directory, "dataset": dataset, "pruner": "none", **more}
    if seed is None:
        given |= {"fixed": {"epochs": EPOCHS}, "space": GRID, "trials": 16}
    else:
        given |= {"engine": "xgboost", "fixed": {"rounds": ROUNDS}, "space": TREES}
        given |= {"trials": TREE_TRIALS, "seed": seed}
    return Tune.from_mapping(given)


def on_spark(slots: int, dataset: Dataset, seed: int | None) -> dict[str, Any]:
    """Search in a session whose processes have run a trial each."""
    from trainyard.job import Run
    from trainyard.rundir import EventWriter
    from trainyard.session import spark_session
    from trainyard.tuning.engines import goal_of
    from trainyard.tuning.studies import open_study
    from trainyard.tuning.sweep import Sweep

    with tempfile.TemporaryDirectory() as directory, spark_session("bench") as spark:

        def search(spec: Tune) -> dict[str, Any]:
            began = time.monotonic()
            events = EventWriter(spec.run_dir, claim=1, writer="driver")
            run = Run(directory=spec.run_dir, claim=1, events=events)
            goal = goal_of(spec, dataset)
            with open_study(spec, goal, dataset.fingerprint) as study:
                if seed is None and spec.trials == 16:
                    every_set(study.inner)
                Sweep(spark.sparkContext, spec, dataset, goal, run, study).run()
                assert study.best is not None
                assert all(trial.state.name == "COMPLETE" for trial in study.trials)
                return {"seconds": time.monotonic() - began, "best": study.best.value}

        given = {"parallel": slots}
        warm = spec_of(f"{directory}/warm", dataset.directory, seed, **given).to_mapping()
        search(Tune.from_mapping({**warm, "trials": 2 * slots, "sampler": "random"}))
        return search(spec_of(f"{directory}/run", dataset.directory, seed, **given))


def every_set(study: optuna.Study) -> None:
    """Let a study try each set of the grid once."""
    for rate in GRID["learning_rate"]["choices"]:
        for size in GRID["batch_size"]["choices"]:
            study.enqueue_trial({"learning_rate": rate, "batch_size": size})


def plainly(dataset: Dataset, seed: int | None) -> dict[str, Any]:
    """Search by plain Optuna in this process, which has run a trial."""
    objective = network(dataset) if seed is None else trees(dataset, seed)
    objective(optuna.trial.FixedTrial({name: _first(entry) for name, entry in _space(seed)}))
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        study = optuna.create_study(
            storage=f"sqlite:///{directory}/study.db",
            sampler=optuna.samplers.TPESampler(seed=seed or 0),
            pruner=optuna.pruners.NopPruner(),
        )
        if seed is None:
            every_set(study)
        study.optimize(objective, n_trials=16 if seed is None else TREE_TRIALS)
        return {"seconds": time.monotonic() - began, "best": study.best_value}


def _space(seed: int | None) -> list[tuple[str, Any]]:
    return list((GRID if seed is None else TREES).items())


def _first(entry: dict[str, Any]) -> Any:
    return entry["choices"][0] if "choices" in entry else entry["low"]


def network(dataset: Dataset) -> Callable[[Any], float]:
    """Plain PyTorch: all rows in memory, one thread."""
    import torch
    import torch.nn.functional as F  # noqa: N812 - torch's own idiom

    from trainyard import networks
    from trainyard.horovod.optimizer import without_compiler

    torch.set_num_threads(1)
    rows, labels = _arrays(dataset, "train")
    checked, wanted = _arrays(dataset, "validation")
    images, targets = torch.from_numpy(rows).view(-1, 1, 28, 28), torch.from_numpy(labels)
    held, answers = torch.from_numpy(checked).view(-1, 1, 28, 28), torch.from_numpy(wanted)
    without_compiler()

    def objective(trial: Any) -> float:
        rate = trial.suggest_categorical("learning_rate", GRID["learning_rate"]["choices"])
        size = trial.suggest_categorical("batch_size", GRID["batch_size"]["choices"])
        torch.manual_seed(0)
        made = networks.build("trainyard.networks.mnist:ConvNet", {})
        optimizer = torch.optim.SGD(made.parameters(), lr=rate, momentum=0.9)
        best = float("inf")
        for epoch in range(1, EPOCHS + 1):
            made.train()
            for batch in torch.split(torch.randperm(len(images)), size):
                optimizer.zero_grad()
                torch.autograd.backward(F.cross_entropy(made(images[batch]), targets[batch]))
                optimizer.step()
            made.eval()
            with torch.inference_mode():
                loss = float(F.cross_entropy(made(held), answers))
            trial.report(loss, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
            best = min(best, loss)
        return best

    return objective


def trees(dataset: Dataset, seed: int) -> Callable[[Any], float]:
    """Plain XGBoost: rows quantised once, one thread."""
    import xgboost as xgb

    made = xgb.QuantileDMatrix(*_arrays(dataset, "train"), nthread=1)
    held = xgb.QuantileDMatrix(*_arrays(dataset, "validation"), ref=made, nthread=1)

    def objective(trial: Any) -> float:
        params: dict[str, Any] = {"objective": "multi:softprob", "num_class": 10, "nthread": 1}
        params |= {"tree_method": "hist", "seed": seed}
        for name, entry in TREES.items():
            suggest = trial.suggest_int if name == "max_depth" else trial.suggest_float
            log = entry.get("log", False)
            params[name.rpartition(".")[2]] = suggest(name, entry["low"], entry["high"], log=log)
        log_of: dict[str, dict[str, list[float]]] = {}
        xgb.train(
            params, made, ROUNDS, evals=[(held, "held")], evals_result=log_of, verbose_eval=False
        )
        return log_of["held"]["mlogloss"][-1]

    return objective


def _arrays(dataset: Dataset, split: str) -> tuple[Any, Any]:
    from trainyard.pieces import PieceReader, pieces

    found = PieceReader(dataset).arrays(pieces(dataset, split, 0, dataset.rows(split)))
    return np.ascontiguousarray(found.features), found.labels


def main() -> None:
    """Print what the search took and found, as JSON."""
    kind, directory, more = sys.argv[1:]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    dataset, seed = Dataset.read(directory), json.loads(more).get("seed")
    found = plainly(dataset, seed) if kind == "plain" else on_spark(int(kind), dataset, seed)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
