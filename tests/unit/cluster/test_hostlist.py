"""Host lists as Slurm writes them, and lists that are too long."""

import pytest

from slurmplug.cluster.hostlist import MAX_NODES, compress, expand


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[1-3,07],login", ["n1", "n2", "n3", "n07", "login"]),
        ("n[008-011]", ["n008", "n009", "n010", "n011"]),
        ("n[099-101]", ["n099", "n100", "n101"]),
        ("n[01-3]", ["n01", "n02", "n03"]),
        ("n[3,1-2]", ["n3", "n1", "n2"]),
        ("n[1-2,1]", ["n1", "n2", "n1"]),
        ("b2,a1", ["b2", "a1"]),
        ("n[1-2]-g[0-3]", ["n1-g0", "n1-g1", "n1-g2", "n1-g3", "n2-g0", "n2-g1", "n2-g2", "n2-g3"]),
        ("tux[1-2][3-4]", ["tux13", "tux14", "tux23", "tux24"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("gpu-a100.site,n[5]", ["gpu-a100.site", "n5"]),
        ("n[3-1]", []),
    ],
)
def test_a_host_list_names_its_hosts(hostlist: str, names: list[str]) -> None:
    assert expand(hostlist) == names


def test_a_host_list_may_name_as_many_nodes_as_any_cluster_has() -> None:
    assert len(expand(f"n[1-{MAX_NODES}]")) == MAX_NODES


@pytest.mark.parametrize(
    "hostlist",
    [
        "n[1-999999999]",
        "n[1-99999999999999999999]",
        "n[1-9999]m[1-9999]",
        "n[1-60000],m[1-60000]",
        "n[1-60000,1-60000]",
        "n,n[1-100000]",
    ],
)
def test_a_host_list_of_more_nodes_than_any_cluster_has_is_refused(hostlist: str) -> None:
    with pytest.raises(ValueError, match="more than 100000 nodes"):
        expand(hostlist)


@pytest.mark.parametrize(
    ("names", "hostlist"),
    [
        ([], ""),
        (["login", "b2", "a1"], "login,a[1],b[2]"),
        (["n3", "n1", "n2", "n7", "n1"], "n[1-3,7]"),
        (["n9", "n10", "n08", "n07"], "n[07-08,10],n[9]"),
        (["n1-ib", "n2-ib"], "n1-ib,n2-ib"),
    ],
)
def test_names_make_a_list_with_ranges(names: list[str], hostlist: str) -> None:
    assert compress(names) == hostlist
    assert set(expand(hostlist)) == set(names)
