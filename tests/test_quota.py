from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proctor.quota import Pool, Quota


def test_one_that_takes_all_leaves_the_others_what_is_their_own():
    pool = Pool(10)
    greedy, modest = Quota(pool, own=2, most=100), Quota(pool, own=2, most=100)
    assert greedy.take(12)
    assert not greedy.take()
    assert modest.take(2)
    assert not modest.take()
    greedy.give(1)
    assert modest.take()


def test_nobody_has_more_than_its_most():
    quota = Quota(Pool(10**6), own=2, most=5)
    assert quota.take(5)
    assert not quota.take()
    assert quota.held == 5


@given(st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(1, 9), st.booleans())))
def test_what_is_given_back_is_there_again(steps):
    pool = Pool(10)
    quotas = [Quota(pool, own=3, most=12), Quota(pool, own=0, most=20)]
    for number, amount, takes in steps:
        quota = quotas[number]
        if takes:
            quota.take(amount)
        else:
            quota.give(min(amount, quota.held))
        assert pool.left == 10 - max(0, quotas[0].held - 3) - quotas[1].held >= 0
