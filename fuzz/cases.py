"""Cases: a command line, the files it meets, and how each kind of case is generated from a seed."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fuzz import mutations, seeds

Files = Mapping[str, bytes]


@dataclass
class Case:
    """A command line, its files, and what is known about it.

    Attributes
    ----------
    kind : str
        Name of the generator.
    words : list of str
        Arguments of the command line.
    files : dict
        Contents of the files in the folder of the case, by name.
    note : str
        What was wrong when the case was found.
    codes : list of int
        Exit codes that are right.
    """

    kind: str
    words: list[str]
    files: dict[str, bytes]
    note: str = ""
    codes: list[int] = field(default_factory=lambda: [0, 2, 3])

    def to_json(self) -> str:
        """Return the case as text."""
        files = {name: base64.b64encode(zlib.compress(data, 9)).decode() for name, data in self.files.items()}
        fields = {"kind": self.kind, "note": self.note, "codes": self.codes, "words": self.words, "files": files}
        return json.dumps(fields, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Return the case of a text."""
        fields = json.loads(text)
        files = {name: zlib.decompress(base64.b64decode(data)) for name, data in fields.pop("files").items()}
        return cls(files=files, **fields)


def generate(kind: str, seeds: Files, choose: Random) -> Case:
    """Generate a case of a kind from the valid files."""
    return KINDS[kind](seeds, choose)


def available(seeds: Files) -> list[str]:
    """Return the kinds for which there are valid files."""
    needed = {"keptnc": "kept.nc", **{kind: chain[0] for kind, chain in _CHAINS.items()}}
    return [kind for kind in KINDS if kind not in needed or any(_is_part(name, needed[kind]) for name in seeds)]


def _is_part(name: str, seed: str) -> bool:
    """Return whether a file belongs to a seed, which may be a folder."""
    return name == seed or name.startswith(f"{seed}/")


# -- mutated chains ----------------------------------------------------------------------------------------------------

_OUTPUTS = ["out.npz", "out.npz", "out.csv", "out.csv.gz", "out.nc", "out.zarr", "out.parquet"]
_CHAINS: dict[str, tuple[str, list[mutations.Mutation], list[str]]] = {
    "npz": ("chain.npz", [mutations.mutate_npz] * 3, []),
    "npy": ("chain.npy", [mutations.mutate_npy] * 3, ["--scores", "scores.npy"]),
    "csv": ("chain.csv", [mutations.mutate_csv] * 5, []),
    "stan": ("stan-diagnostic.csv", [mutations.mutate_csv] * 3, ["--output-csv", "stan-output.csv"]),
    "parquet": ("chain.parquet", [mutations.mutate_parquet] * 2, []),
    "netcdf": ("chain.nc", [mutations.mutate_hdf5] * 2, []),
    "classic": ("classic.nc", [], ["--draws-name", "draws", "--scores-name", "scores"]),
    "emcee": ("run.h5", [mutations.mutate_hdf5] * 2, []),
    "zarr2": ("two.zarr", [], []),
    "zarr3": ("three.zarr", [], []),
    "zarrzip": ("chain.zarr.zip", [mutations.mutate_zip] * 3, []),
}


def _chain(kind: str) -> Callable[[Files, Random], Case]:
    name, structural, options = _CHAINS[kind]

    def make(seeds: Files, choose: Random) -> Case:
        files = {each: data for each, data in seeds.items() if _is_part(each, name) or each in options}
        for _ in range(choose.choice([1, 1, 1, 2, 4])):
            _mutate_one(files, [*structural, mutations.mutate_bytes], choose)
        command = choose.choice(["thin"] * 5 + ["inspect", "ksd", "follow" if kind in ("csv", "stan") else "thin"])
        words = [command, name, *([] if command == "follow" and "scores.npy" in options else options)]
        if command == "ksd":
            words = [word for word in words if word not in ("--output-csv", "stan-output.csv")]
        if command in ("thin", "follow"):
            words += ["-o", _existing_output(files, choose)]
            words += choose.choice([[], ["--size", "5"], ["--on-bad", "skip"], ["--on-bad", "skip", "--size", "7"]])
            words += ["--no-validate-scores"] if choose.random() < 0.3 else []
        words += ["--until-idle", "0"] if command == "follow" else []
        words += ["--passes", "2"] if command == "thin" and choose.random() < 0.1 else []
        return Case(kind, words, files)

    return make


_LARGEST = 300_000  # bytes of a mutated file


def _mutate_one(files: dict[str, bytes], how: list[mutations.Mutation], choose: Random, name: str = "") -> None:
    """Mutate one of the files: metadata of a store as JSON, the others by one of the mutations."""
    metadata = [name for name in files if name.endswith((".zgroup", ".zarray", ".zattrs", ".zmetadata", "zarr.json"))]
    name = name or choose.choice([*files, *metadata * 2])
    if metadata and choose.random() < 0.05:
        del files[name]
        return
    mutate = mutations.mutate_json if name in metadata and choose.random() < 0.7 else choose.choice(how)
    try:
        mutated = mutate(files[name], choose)
    except Exception:  # a file that was mutated before cannot be read any more
        mutated = None
    if mutated is None or len(mutated) > _LARGEST:  # a large file may take as long as its draws need
        mutated = mutations.mutate_bytes(files[name], choose)
    files[name] = mutated


def _existing_output(files: dict[str, bytes], choose: Random) -> str:
    """Return the name of an output, which sometimes exists."""
    name = choose.choice(_OUTPUTS)
    if choose.random() < 0.5:
        files[name if not name.endswith(".zarr") else f"{name}/zarr.json"] = b"an earlier file"
    return name


# -- kept sets and checkpoints -----------------------------------------------------------------------------------------


def _kept(seeds: Files, choose: Random) -> Case:
    name = choose.choice(["kept.npz"] * 4 + ["kept.zarr"] * ("kept.zarr/.zgroup" in seeds))
    return _use_kept("kept", name, seeds, choose)


def _kept_netcdf(seeds: Files, choose: Random) -> Case:
    return _use_kept("keptnc", "kept.nc", seeds, choose)


def _use_kept(kind: str, name: str, seeds: Files, choose: Random) -> Case:
    files = {each: data for each, data in seeds.items() if each == name or each.startswith(f"{name}/")}
    how = {"kept.npz": mutations.mutate_kept, "kept.nc": mutations.mutate_hdf5}.get(name, mutations.mutate_bytes)
    for _ in range(choose.choice([1, 1, 2])):
        _mutate_one(files, [how, how, how, mutations.mutate_bytes], choose)
    files |= {each: seeds[each] for each in ("other.npz", "single.npz")}
    output = _existing_output(files, choose)
    words = choose.choice(
        [
            ["merge", name, "other.npz", "-o", output, "--size", "6"],
            ["merge", name, "other.npz", "-o", output, "--masses", choose.choice(["kept", "lengths", "1,2"])],
            ["refine", name, "-o", output, "--weights"],
            ["refine", name, "-o", output, "--order", "--weights"],
            ["ksd", name],
            ["thin", "single.npz", "-o", output, "--initial", name, "--size", "5"],
            ["thin", "single.npz", "-o", output, "--preconditioner", name],
            ["thin", name, "-o", output, "--size", "4"],
            ["inspect", name],
            ["inspect", name] if choose.random() < 0.9 else ["report", name, "-o", "out.html"],  # a report is slow
        ]
    )
    return Case(kind, words, files)


def _checkpoint(available: Files, choose: Random) -> Case:
    name = choose.choice(sorted(seeds.RESUMABLE))
    words = seeds.RESUMABLE[name]
    files = {words[1]: available[words[1]], name: available[name]}
    files[name] = mutations.mutate_checkpoint(files[name], choose)
    return Case("checkpoint", [*words, "-o", _existing_output(files, choose), "--checkpoint", name, "--resume"], files)


def _workers(available: Files, choose: Random) -> Case:
    """Continue in a forged folder of workers."""
    files = {"chain.npz": available["chain.npz"]}
    files |= {name: data for name, data in available.items() if name.startswith("work/")}
    for _ in range(choose.choice([1, 1, 2])):
        name = choose.choice([name for name in files if name.startswith("work/")])
        how = [mutations.mutate_checkpoint if name.endswith(".checkpoint") else mutations.mutate_kept]
        mutate = choose.choice([*how * 4, mutations.mutate_bytes])
        try:
            files[name] = mutate(files[name], choose)
        except Exception:  # a file that was mutated before cannot be read any more
            files[name] = mutations.mutate_bytes(files[name], choose)
    if choose.random() < 0.1:
        del files[choose.choice(sorted(files))]
    if choose.random() < 0.1:
        files[f"work/leaf-{choose.choice(['00007', '1', 'x'])}.npz"] = available["kept.npz"]
    return Case("workers", [*seeds.WORKERS, "-o", _existing_output(files, choose)], files)


# -- simulations and functions of users --------------------------------------------------------------------------------


def _average(seeds: Files, choose: Random) -> Case:
    """Average damaged outputs of simulations, or outputs for a damaged kept set."""
    kept = choose.choice(["ordered.npz", "ordered.npz", "kept.npz", "other.npz"])
    outputs = choose.choice(["outputs.csv", "outputs.csv", "outputs.npy"])
    files = {name: seeds[name] for name in (kept, outputs)}
    for _ in range(choose.choice([1, 1, 2])):
        name = choose.choice([kept, outputs, outputs, outputs])
        how = {".npz": mutations.mutate_kept, ".npy": mutations.mutate_npy}.get(name[-4:], mutations.mutate_csv)
        _mutate_one(files, [how, how, how, mutations.mutate_bytes], choose, name)
    words = ["average", kept, outputs]
    columns = choose.choice(["peak", "peak,time", "time,time", "run", "missing", ""])
    words += ["--columns", columns] if choose.random() < 0.3 else []
    quantiles = choose.choice(["0.5", "0,1", "0.9,0.1", "0.5,0.5", "2", "nan", "x", "", "1e-300"])
    words += ["--quantiles", quantiles] if choose.random() < 0.3 else []
    if choose.random() < 0.6:
        words += ["-o", "table.csv"]
        if choose.random() < 0.5:
            files["table.csv"] = b"an earlier file"
    return Case("average", words, files)


_MODEL = """
def standard_normal(x): return -0.5 * float(x @ x)
def score_of_standard_normal(x): return -x
def raises(x): raise ValueError("no \\udcff value")
def leaves(x): raise SystemExit(1)
def nan(x): return float("nan")
def infinite(x): return float("inf")
def nothing(x): return None
def text(x): return "x"
def wrong_shape(x): return [1.0]
def nested(x): return [[1.0, [2.0]]]
def complex_number(x): return 1j
def huge(x): return 1e308 * x
def sometimes(x): return -0.5 * float(x @ x) if x[0] > 0 else float("nan")
def changes(x): x[:] = 0; return 0.0
def two(x, y): return 0.0
number = 3
""".lstrip()


def _scores(seeds: Files, choose: Random) -> Case:
    """Compute scores with functions that are right or wrong, of draws that are right or damaged."""
    chain = choose.choice(["noscores.csv", "noscores.csv", "single.npz", "chain.npy"])
    files = {chain: seeds[chain]}
    if choose.random() < 0.5:
        how = {".npz": mutations.mutate_npz, ".npy": mutations.mutate_npy}.get(chain[-4:], mutations.mutate_csv)
        _mutate_one(files, [how, how, how, mutations.mutate_bytes], choose)
    text = (
        _MODEL if choose.random() < 0.9 else choose.choice(["1 +", "import missing_module", "1 / 0", "\0", "exit(1)"])
    )
    module = f"model_{zlib.crc32(text.encode()):x}"  # one process imports each text once
    files[f"{module}.py"] = text.encode()
    names = [line.partition("(")[0][4:] for line in _MODEL.splitlines() if line.startswith("def ")]
    kind = choose.choice(["--log-density", "--log-density", "--score"])
    right = "score_of_standard_normal" if kind == "--score" else "standard_normal"
    name = choose.choice([right] * len(names) + [*names, "number", "missing", "", "standard_normal:x"])
    place = choose.choice([f"{module}.py", f"{module}.py", module, "missing.py", ""] if name != right else [module])
    words = ["scores", chain, kind, f"{place}:{name}", "-o", choose.choice(["scored.npz"] * 4 + ["scored.csv"])]
    if choose.random() < 0.5:
        files[words[-1]] = b"an earlier file"
    if choose.random() < 0.2:
        words += ["--checkpoint", "run.state"]
        if choose.random() < 0.5:
            files["run.state"] = choose.choice([b"", b"?", seeds["size.state"], seeds["kept.npz"]])
    words += ["--size", choose.choice(["1", "5", "80", "100"])] if choose.random() < 0.3 else []
    words += ["--first", choose.choice(["1", "6", "1000"])] if choose.random() < 0.1 else []
    words += ["--on-error", "nan"] if choose.random() < 0.3 else []
    words += ["--accuracy", choose.choice(["1e-3", "0", "nan", "-1", "1e-300", "inf"])] if choose.random() < 0.1 else []
    words += ["--burn-in", choose.choice(["5", "50%", "79", "80", "81"])] if choose.random() < 0.1 else []
    return Case("scores", words, files)


def _serve(seeds: Files, choose: Random) -> Case:
    """Serve the dashboard of a run, at ports of any kind."""
    command = choose.choice(["thin", "follow"])
    chain = "chain.csv" if command == "follow" else choose.choice(["chain.npz", "chain.csv", "noscores.csv"])
    files = {chain: seeds[chain]}
    if choose.random() < 0.3:
        _mutate_one(files, [mutations.mutate_npz if chain.endswith("npz") else mutations.mutate_csv], choose)
    words = [command, chain, "-o", _existing_output(files, choose), *(["--serve"] if choose.random() < 0.9 else [])]
    ports = [
        "0",
        "1",
        "22",
        "80",
        "65535",
        "65536",
        "-1",
        "",
        "x",
        "nan",
        "1e3",
        "9" * 30,
        "localhost",
        "0x10",
        "\udcff",
    ]
    words += ["--port", choose.choice(ports)] if choose.random() < 0.7 else []
    words += choose.choice([[], ["--json"], ["--quiet"], ["--size", "5"], ["--workers", "0"], ["--passes", "2"]])
    words += ["--until-idle", "0"] if command == "follow" else []
    return Case("serve", words, files)


# -- options -----------------------------------------------------------------------------------------------------------

_WORDS = [
    *("0", "1", "-1", "2", "7", "100", "1e3", "0.5", "-0.5", "nan", "inf", "-inf", "1e999", "1e-300", "1e200", "1_0"),
    *("", " ", "x", "auto", "none", "sqrt", "linear", "power:0.5", "power:", "power:x", "constant:5", "constant:-1"),
    *("constant:1e30", "share:0.5", "share:2", "decaying", "imq", "imq:c=0", "imq:c=1,beta=-2", "imq:c=nan", "rbf"),
    *("rbf:h=1e-300", "rbf:h=", "imq:linear=1", "imq:c=1e200", "identity", "scale", "scales", "covariance"),
    *(
        "streaming",
        "a,b",
        "a",
        "b,a",
        "a,a",
        ",",
        "a,missing",
        "é",
        "\udcff",
        "--size",
        "-",
        "--",
        "10%",
        "50%",
        "200%",
    ),
    *("chain.npz", "kept.npz", "other.npz", "chain.csv", "scores.npy", "missing.npz", "folder", ".", "/dev/full"),
    *("/dev/null", "out.npz", "out.html", "out.xyz", "nowhere/out.npz", "folder/out.zarr", "npz", "csv", "default"),
    *("stride", "ksdt", "stein_thinning", "random_thinning", "spmcmc", "reservoir", "raise", "skip", "5,5", "1,2,3"),
]
_HUGE = ["2147483648", "9223372036854775807", "1" * 30]
_LEFT_OUT = {"client", "workers", "serve", "port", "help", "log_density", "score", "processes", "by"}
_MAIN = {"thin": "chain.npz", "follow": "chain.csv", "merge": "kept.npz", "refine": "kept.npz", "report": "kept.npz"}


def _options(seeds: Files, choose: Random) -> Case:
    """Give a command some of its options with values of any kind; the options are those that it declares."""
    import click

    from steinstream.cli import commands

    command = choose.choice(["thin"] * 8 + ["follow", "merge", "refine", "ksd", "inspect"])
    command = choose.choice(["report", "plan", "compare"]) if choose.random() < 0.02 else command  # slow
    chain = choose.choice(["chain.npz", "single.npz", "chain.csv", "noscores.csv", "chain.npy"])
    words = [command, _MAIN[command] if command in _MAIN and choose.random() < 0.8 else chain]
    words += ["other.npz"] if command == "merge" or choose.random() < 0.05 else []
    words += (
        ["-o", choose.choice(["out.npz", "out.csv", "-"])] if command in ("thin", "follow", "merge", "refine") else []
    )
    declared: Any = commands.commands[command]
    offered = [one for one in declared.get_params(click.Context(declared)) if isinstance(one, click.Option)]
    offered = [one for one in offered if one.name not in _LEFT_OUT]
    for option in choose.sample(offered, min(len(offered), choose.choice([0, 1, 1, 2, 2, 3, 5]))):
        words.append(choose.choice([*option.opts, *option.secondary_opts]))
        if not option.is_flag:
            likely = [*getattr(option.type, "choices", ()), *_likely(str(option.name))]
            pool = _WORDS if option.name == "passes" else [*_WORDS, *_HUGE]
            words.append(choose.choice(likely if likely and choose.random() < 0.6 else pool))
    words += ["--until-idle", "0"] if command == "follow" else []
    names = {"chain.npz", "single.npz", "chain.csv", "noscores.csv", "chain.npy", "scores.npy", "kept.npz", "other.npz"}
    files = {name: seeds[name] for name in sorted(names)}
    files["folder/file.txt"] = b"a file of the user"
    if choose.random() < 0.3:
        files["out.npz"] = seeds["other.npz"]
    return Case("options", words, files)


def _likely(name: str) -> list[str]:
    return {
        "size": ["1", "5", "10", "79", "80", "81"],
        "growth": ["none", "linear", "sqrt", "power:0.7", "constant:9"],
        "budget": ["0", "0.1", "decaying", "share:0.3"],
        "passes": ["1", "2", "auto"],
        "candidates": ["2", "5", "50"],
        "kernel": ["imq", "rbf", "imq:c=2,beta=-0.3", "rbf:h=3", "imq:linear=0.5"],
        "preconditioner": ["auto", "identity", "scale", "scales", "covariance", "streaming", "0.5", "kept.npz"],
        "stream_weight": ["0", "1", "0.3"],
        "parameters": ["a", "b,a", "a,b,c"],
        "burn_in": ["5", "10%", "39", "40"],
        "scores": ["scores.npy"],
        "report": ["out.html"],
        "initial": ["kept.npz", "single.npz"],
        "checkpoint": ["run.state"],
        "chain": ["chain.npz"],
    }.get(name, [])


KINDS: dict[str, Callable[[Files, Random], Case]] = {
    **{kind: _chain(kind) for kind in _CHAINS},
    "kept": _kept,
    "keptnc": _kept_netcdf,
    "checkpoint": _checkpoint,
    "options": _options,
    "workers": _workers,
    "average": _average,
    "scores": _scores,
    "serve": _serve,
}
