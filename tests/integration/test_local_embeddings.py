"""The local embeddings model, as `nightmill up` starts it, through the whole line to published vectors (E7).

Server and model are the real ones; pools, prices and the pipeline are those that ship.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from kit.line import Line
from nightmill.client import load_pipeline
from nightmill.kernel.domain.lifecycle import BatchState
from nightmill.kernel.domain.pipeline import Pipeline
from nightmill.kernel.domain.settings import Config, LocalServers
from nightmill.kernel.resources import resource
from nightmill.kernel.runtime.settings import load_config
from nightmill.kernel.wire.messages import ItemSettled, JobCompleted
from nightmill.local.children import embeddings_server_child
from nightmill.local.embeddings_model import find_package
from nightmill.local.home import open_home
from nightmill.local.processes import LOOPBACK, free_port
from nightmill.planner.tokens import count_tokens
from nightmill.publisher.results import read_failures, read_table

POOL = "local-embeddings"
RESULTS = "results/default.embed-documents"
#: three texts of each topic, in words of their own
TOPICS = {
    "money": ["My card was charged twice.", "I paid two times for one invoice.", "Please refund the double payment."],
    "cats": ["A cat sleeps on the windowsill.", "Kittens like to nap in the sun.", "My cat purrs in its sleep."],
    "code": ["The compiler reports a type error.", "This function raises an exception.", "The unit test fails in CI."],
}
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the model's API begins."""
    port = free_port()
    child = embeddings_server_child(open_home(tmp_path_factory.mktemp("home")), port)
    with child.start() as process:
        while not child.is_ready(process):
            assert process.poll() is None
            sleep(0.05)
        yield f"http://{LOOPBACK}:{port}/v1"
        process.terminate()


@contextmanager
def opened(folder: Path, server: str, **pool: Any) -> Iterator[Line]:
    """A line on the settings that ship, but for what `pool` changes of the model's."""
    shipped = load_config(resource("deploy", "config"))
    changed = shipped.pools[POOL].model_copy(update=pool)
    config: Config = shipped.model_copy(update={"pools": {**shipped.pools, POOL: changed}})
    line = Line(folder, config, local_servers=LocalServers(embeddings_url=server))
    try:
        yield line
    finally:
        line.close()


def finish(line: Line, pipeline: Pipeline, texts: dict[str, str]) -> JobCompleted:
    rows = [{"id": id_, "text": text, "name": id_} for id_, text in texts.items()]
    return line.finish(line.submit(pipeline, rows))


def uncut(**gates: float) -> Pipeline:
    """The pipeline that ships, but with the whole text."""
    shipped = load_pipeline("embed-documents")
    return Pipeline.model_validate({**json.loads(shipped.canonical()), "prompt": "{{ text }}", "gates": gates})


def vectors(line: Line) -> dict[str, Floats]:
    table = read_table(line.folder / RESULTS)
    assert table is not None
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 384)
    rows = zip(table["_source_id"].to_pylist(), table["embedding"].to_pylist(), strict=True)
    return {id_: np.array(vector, np.float32) for id_, vector in rows}


def test_texts_on_one_subject_are_closer_than_others(tmp_path: Path, server: str) -> None:
    """E7, Q5, P6: published as fixed-size lists; what is longer than the pipeline takes is cut by its prompt."""
    texts = {f"{topic}-{i}": text for topic, several in TOPICS.items() for i, text in enumerate(several)}
    texts["long"] = "The cat sat in the sun and slept. " * 2_000
    with opened(tmp_path, server) as line:
        notice = finish(line, load_pipeline("embed-documents"), texts)
        found = vectors(line)
    assert (notice.state, notice.counts.accepted, notice.totals.cost_nano_usd) == (BatchState.PUBLISHED, 10, 0)
    long, short = found["long"], {name: vector for name, vector in found.items() if name != "long"}
    for topic in TOPICS:
        related = [found[f"{topic}-{i}"] @ found[f"{topic}-{j}"] for i in range(3) for j in range(i)]
        others = [found[f"{topic}-{i}"] @ short[id_] for i in range(3) for id_ in short if topic not in id_]
        assert min(related) > max(others)
    assert max(short, key=lambda name: float(long @ short[name])).startswith("cats")


def test_a_text_over_the_limit_is_a_dead_letter_before_anything_is_sent(tmp_path: Path, server: str) -> None:
    """P4, E8: 510 words and two signs around them fit into 512 tokens, one more does not."""
    texts = {"fits": "word " * 510, "over": "word " * 511, "short": "word"}
    with opened(tmp_path, server) as line:
        notice = finish(line, uncut(completion=0.5), texts)
        (dead,) = read_failures(line.folder / RESULTS)
        (failure,) = [told.failure for told in line.told(ItemSettled, "item-settled") if told.failure is not None]
        assert set(vectors(line)) == {"fits", "short"}
    assert (notice.counts.accepted, notice.counts.dead_letter, notice.totals.attempts) == (2, 1, 2)
    assert (dead["source_id"], dead["failure_class"], dead["signal"]) == ("over", "bad_input", "context_too_long")
    assert failure.message.startswith("text: 513 tokens exceed the context of local-embeddings (512); cut the text")
    assert notice.totals.input_tokens == 512 + 3


def test_a_text_that_was_counted_short_takes_nobody_with_it(tmp_path: Path, server: str) -> None:
    """E8: a pool with an estimate sends it; the server refuses the call with 500, which is divided, never repeated."""
    texts = {f"d{i}": f"text number {i}" for i in range(7)} | {"over": "unbelievably " * 300}
    with opened(tmp_path, server, tokenizer="estimate", token_factor=0.1) as line:
        notice = finish(line, uncut(completion=0.5), texts)
        (dead,) = read_failures(line.folder / RESULTS)
    assert (notice.counts.accepted, notice.counts.dead_letter, notice.totals.retries) == (7, 1, 0)
    assert (dead["source_id"], dead["failure_class"], dead["signal"]) == ("over", "bad_input", "context_too_long")


def test_tokens_are_counted_as_the_server_does(server: str) -> None:
    """P4: in any script; only its special tokens, spelt out in a text, are counted as the words they are made of."""
    texts = [
        *(text for several in TOPICS.values() for text in several),
        *(
            "",
            "x" * 300,
            "naïve café ÀÉÎ İstanbul",
            "a\u0301b e\u0302",
            "日本語 中文字",
            "한국어 텍스트",
            "हिन्दी ไทย தமிழ்",
        ),
        *("العربية", "€100 ≠ ≤ + <me@x.org>", "“quotes”—dash…", "😀 👩‍👩‍👧", "foo\u200bbar\u00adx\ufeff", "ﬁ ① ½ ß ẞ"),
        *(
            "tab\tnl\nnbsp\u00a0\u2028x\u0085y",
            "\x01ctl\x7f\x1c",
            "\ufffd x \ud7ff \ue000",
            "camelCase_v1.2(c)",
            "## ##ing",
        ),
    ]
    counted = count_tokens(texts, "bert_uncased")
    url = server.removesuffix("/v1") + "/tokenize"
    with httpx.Client(trust_env=False) as client:
        answers = [client.post(url, json={"content": text, "add_special": True}).json() for text in texts]
    assert counted == [len(answer["tokens"]) for answer in answers]


def test_the_vectors_are_those_of_the_packages_numbers(server: str) -> None:
    """E7: the conversion and its 16 bits change no direction: cosine to 32-bit arithmetic on the package's own file."""
    text = TOPICS["money"][0]
    with httpx.Client(trust_env=False, timeout=60) as client:
        root = server.removesuffix("/v1")
        tokens = client.post(f"{root}/tokenize", json={"content": text, "add_special": True}).json()["tokens"]
        answer = client.post(f"{server}/embeddings", json={"input": [text]}).json()["data"][0]["embedding"]
    assert np.array(answer, np.float32) @ reference(tokens) > 0.9999


def reference(tokens: list[int]) -> Floats:
    """The vector by the model's definition: BERT, the mean over all tokens, length 1."""
    package = find_package()
    assert package is not None
    raw = np.fromfile(package / "model.safetensors", np.uint8)
    length = int(raw[:8].view("<u8")[0])
    told = json.loads(raw[8 : 8 + length].tobytes())

    def weights(name: str) -> Floats:
        begin, end = (8 + length + offset for offset in told[name]["data_offsets"])
        numbers: Floats = raw[begin:end].view("<f4").reshape(told[name]["shape"])
        return numbers

    def linear(name: str, x: Floats) -> Floats:
        return x @ weights(f"{name}.weight").T + weights(f"{name}.bias")

    def norm(name: str, x: Floats) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        scaled: Floats = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * weights(f"{name}.weight") + weights(f"{name}.bias")

    def heads(x: Floats) -> Floats:
        return x.reshape(len(tokens), 12, 32).transpose(1, 0, 2)

    gelu = np.vectorize(lambda v: v * (1 + math.erf(v / math.sqrt(2))) / 2, otypes=[np.float32])
    x = weights("embeddings.word_embeddings.weight")[tokens]
    x = x + weights("embeddings.position_embeddings.weight")[: len(tokens)]
    x = norm("embeddings.LayerNorm", x + weights("embeddings.token_type_embeddings.weight")[0])
    for layer in (f"encoder.layer.{number}" for number in range(6)):
        q, k, v = (heads(linear(f"{layer}.attention.self.{part}", x)) for part in ("query", "key", "value"))
        scores = np.exp(q @ k.transpose(0, 2, 1) / math.sqrt(32))
        seen = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(tokens), 384)
        x = norm(f"{layer}.attention.output.LayerNorm", x + linear(f"{layer}.attention.output.dense", seen))
        wide = gelu(linear(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", x + linear(f"{layer}.output.dense", wide))
    mean: Floats = x.mean(0)
    return mean / np.float32(np.linalg.norm(mean))
