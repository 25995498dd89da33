"""Paths and addresses that lead to the same place are spelled alike, and no others."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.spellings import rooted, spelled_address, spelled_path


@pytest.mark.parametrize(
    ("path", "full"),
    [
        ("a", "/w/a"),
        ("./a", "/w/a"),
        ("/w/a", "/w/a"),
        ("b/../a", "/w/a"),
        ("a/", "/w/a"),
        ("a//b/./c", "/w/a/b/c"),
        ("../w/a", "/w/a"),
        ("/../a", "/a"),
        ("//a", "/a"),
        ("///a", "/a"),
        (".", "/w"),
        ("~", "/home/u"),
        ("~/a", "/home/u/a"),
        ("./~/a", "/w/~/a"),
        ("~bob/a", "~bob/a"),
        ("a~", "/w/a~"),
        ("", ""),
        (" a", "/w/ a"),
    ],
)
def test_a_path_is_spelled_from_the_root(path, full):
    assert spelled_path(path, "/w", "/home/u") == full


@given(st.lists(st.sampled_from(["a", "b", "..", ".", "", "/", "~"]), min_size=1, max_size=8).map("/".join))
def test_a_path_spelled_alike_leads_to_the_same_file_where_there_are_no_links(path):
    if path and not path.startswith("~"):
        assert spelled_path(path, "/w", "/home/u") == "/" + os.path.abspath(os.path.join("/w", path)).lstrip("/")
        assert spelled_path(spelled_path(path, "/w", "/h"), "/elsewhere", "/h") == spelled_path(path, "/w", "/h")


def test_what_is_not_known_is_not_made_up():
    assert spelled_path("~/a", "/w", "") == "~/a"
    assert spelled_path("./b/../a", "", "/home/u") == "a"
    assert rooted("b/../a", "/w", "/home/u") == "/w/b/../a"


@pytest.mark.parametrize(
    "url",
    [
        "HTTP://Example.COM/Path?Q=1#part",
        "http://example.com:80/Path?Q=1",
        "http://example.com:/Path?Q=1#",
    ],
)
def test_a_url_is_spelled_without_what_no_server_hears(url):
    assert spelled_address(url) == "http://example.com/Path?Q=1"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a/x", "https://a/x"),
        ("http://a/x", "http://a/X"),
        ("http://a/x", "http://a:81/x"),
        ("http://a/?b", "http://a/?B"),
        ("http://a/?x=1&y=2", "http://a/?y=2&x=1"),
        ("http://u@a/", "http://U@a/"),
        ("http://a/x", "http://a/x/"),
        ("http://a/x%2Fy", "http://a/x/y"),
        ("https://a:80/", "https://a/"),
        ("http://a/\tb", "http://a/b"),
        ("http://a/./b", "http://a/b"),
        ("mailto:A@b", "mailto:a@b"),
        ("/a#b", "/a"),
        ("http://a:8o/", "http://a/"),
    ],
)
def test_addresses_that_may_lead_elsewhere_stay_apart(one, other):
    assert spelled_address(one) != spelled_address(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a", "https://A:443/"),
        ("https://a?q", "https://a/?q"),
        ("ws://[::1]:80/x", "ws://[::1]/x"),
        ("http://[FE80::1]/", "http://[fe80::1]/"),
        ("custom://Host/x", "CUSTOM://host/x#y"),
    ],
)
def test_addresses_that_lead_to_the_same_are_spelled_alike(one, other):
    assert spelled_address(one) == spelled_address(other)


@given(st.text("htp:/aA.@?#[]08é ", max_size=20).map("http://".__add__))
def test_an_address_that_was_spelled_is_spelled_so_again(url):
    assert spelled_address(spelled_address(url)) == spelled_address(url)
