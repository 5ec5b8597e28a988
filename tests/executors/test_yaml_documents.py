from __future__ import annotations

import yaml

from sizewright.executors.yaml_documents import to_yaml


def test_comment_cannot_break_the_document() -> None:
    assert yaml.safe_load(to_yaml(["one\ntwo: 3\x07"], {"a": 1})) == {"a": 1}
