"""A csv file is read while it grows: complete lines only, chains interleaved, a replaced file noticed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.io.csv_follow import (
    FileReplacedError,
    FileTail,
    FollowedFiles,
    GrowingCsv,
    LineBuffer,
    interleave_ready,
)

STAN = b"# stan_version_major = 2\n# model = m\n#  num_samples = 4\n#  num_warmup = 2\n#  save_warmup = true\n"


def ids_of(blocks):
    return [id for block in blocks for id in block.ids.tolist()]


def test_pieces_become_complete_lines():
    lines = LineBuffer()
    assert [lines.add(piece) for piece in (b"on", b"e\ntw", b"", b"o\nthree\nfo")] == [
        b"",
        b"one\n",
        b"",
        b"two\nthree\n",
    ]


def test_a_tail_returns_complete_lines_only_and_notices_a_new_file(tmp_path):
    path = tmp_path / "f"
    tail = FileTail(path)
    assert tail.read() == b""
    path.write_bytes(b"one\ntw")
    assert (tail.read(), tail.read()) == (b"one\n", b"")
    path.write_bytes(b"one\ntwo\n")
    assert tail.read() == b"two\n"
    path.write_bytes(b"another\nfile\nwhich is longer\n")
    with pytest.raises(FileReplacedError):
        tail.read()
    tail = FileTail(path)
    tail.read()
    path.unlink()
    assert tail.read() == b""  # it may be written again
    path.write_bytes(b"")
    with pytest.raises(FileReplacedError):
        tail.read()


def test_chains_are_interleaved_without_those_that_have_ended():
    chains = []
    for number, count in enumerate([3, 1, 2]):
        chain = GrowingCsv(Path("c"), number, alone=False)
        chain.feed(b"a,score_a\n" + b"".join(b"%d,0\n" % draw for draw in range(count)))
        chains.append(chain)
    assert ids_of(interleave_ready(chains, [False, False, False])) == [[0, 0], [1, 0], [2, 0]]
    assert ids_of(interleave_ready(chains, [True, True, True])) == [[0, 1], [2, 1], [0, 2]]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_draws_do_not_depend_on_how_the_text_is_divided(size):
    text = b"# by a sampler\na,b,score_a,score_b\r\n1,2,3,4\n\n# a comment\n5,6,7,8\r\n9,10,11,12\n"
    chain, lines = GrowingCsv(Path("c"), negate=True), LineBuffer()
    for at in range(0, len(text), size):
        if whole := lines.add(text[at : at + size]):
            chain.feed(whole)
    block = chain.take(chain.ready)
    assert chain.names == ("a", "b") and (chain.received, chain.taken) == (3, 3)
    assert block.draws.tolist() == [[1, 2], [5, 6], [9, 10]]
    assert block.scores.tolist() == [[-3, -4], [-7, -8], [-11, -12]]


def test_the_warmup_of_cmdstan_is_left_out_and_its_gradients_are_negated():
    chain = GrowingCsv(Path("c"), start=1)
    chain.feed(STAN + b"lp__,x,p_x,g_x\n" + b"".join(b"0,%d,0,%d\n" % (i, 10 * i) for i in range(5)))
    assert chain.is_stan and chain.config.samples == 4 and not chain.finished and chain.received == 3
    block = chain.take(2)
    assert block.draws.tolist() == [[3], [4]] and block.scores.tolist() == [[-30], [-40]]
    assert block.ids.tolist() == [[0, 1], [0, 2]] and chain.names == ("x_unc",)
    chain.feed(b"0,5,0,50\n#  Elapsed Time: 1 seconds (Warm-up)\n")
    assert chain.finished


@pytest.mark.parametrize(
    ("line", "match"),
    [(b"1,2", r"c, line 4: 2 fields, expected 4"), (b"1,x,3,4", r"c, line 4, column b: 'x' is not a number")],
)
def test_an_invalid_line_is_named(line, match):
    chain = GrowingCsv(Path("c"))
    chain.feed(b"a,b,score_a,score_b\n1,2,3,4\n")
    with pytest.raises(InputError, match=match):
        chain.feed(b"1,2,3,4\n" + line + b"\n")


def test_a_file_with_ids_is_followed_alone_and_from_its_start():
    text = b"chain,a,score_a\n7,1,2\n"
    chain = GrowingCsv(Path("c"))
    chain.feed(text)
    assert chain.take(1).ids.tolist() == [[7, 0]]
    for options, remedy in (({"alone": False}, "alone"), ({"start": 1}, "cannot be resumed")):
        with pytest.raises(InputError, match=remedy):
            GrowingCsv(Path("c"), **options).feed(text)
    with pytest.raises(InputError, match="has no header"):
        GrowingCsv(Path("c")).feed(b"1,2\n")


def test_files_are_followed_until_they_end(tmp_path):
    paths = [tmp_path / f"{i}.csv" for i in range(2)]
    files = FollowedFiles(paths)
    assert not files.read() and files.names is None and list(files.blocks()) == []
    for number, path in enumerate(paths):
        path.write_bytes(STAN.replace(b"save_warmup = true", b"thin = 1") + b"lp__,x,p_x,g_x\n")
        with path.open("ab") as file:
            file.write(b"".join(b"0,%d,0,0\n" % i for i in range(2 + 2 * number)))
    assert files.read() and files.names == ("x_unc",) and files.fraction == 6 / 8
    assert files.ended == [False, True]
    assert ids_of(files.blocks()) == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert ids_of(files.blocks()) == [] and ids_of(files.blocks(last=True)) == [[1, 2], [1, 3]]
    assert not files.read() and FollowedFiles(paths, patience=0.0).ended == [False, False]


def test_chains_of_different_models_are_not_followed_together(tmp_path):
    (tmp_path / "a.csv").write_text("a,score_a\n1,2\n")
    (tmp_path / "b.csv").write_text("b,score_b\n1,2\n")
    files = FollowedFiles([tmp_path / "a.csv", tmp_path / "b.csv"])
    files.read()
    with pytest.raises(InputError, match=r"b\.csv has the parameters b, .*a\.csv has a"):
        _ = files.names


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_closed_when_its_writer_has_closed_it(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    files = FollowedFiles([tmp_path / "pipe.csv"])
    assert not files.read() and files.ended == [False]
    writer = os.open(tmp_path / "pipe.csv", os.O_WRONLY)
    assert not files.read() and files.ended == [False]
    os.write(writer, b"a,score_a\n1,2\n3")
    assert files.read() and np.concatenate([block.draws for block in files.blocks()]).tolist() == [[1]]
    os.write(writer, b",4\n")
    assert files.read() and files.ended == [False]
    os.close(writer)
    assert not files.read() and files.ended == [True]
    assert np.concatenate([block.draws for block in files.blocks()]).tolist() == [[3]]
