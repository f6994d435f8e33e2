"""The jobs that wait in each row of a simulation: which is the first, and which is the first that may start now."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from predictors.arrays import Bools, Floats, Ints
from slurmplug.forecasting.starts.rows import Rows
from slurmplug.forecasting.starts.waiting_lists import WaitingLists, filled


class Turned(NamedTuple):
    """Rows (n,), and a group or a set of groups in each that is held back from now on, or no longer."""

    rows: Ints
    which: Ints
    held: Bools


class WaitingJobs(Rows):
    """Of the jobs of each kind (`WaitingLists`) only the first that waits is looked at: its place has the time limit of
    the kind, as a rank, while its group is not held back. The least of each chunk of places and of each list is kept,
    so that the first job of a list with a time limit below some other is found in one chunk."""

    def __init__(self, of: WaitingLists, samples: int) -> None:
        self._lists = of
        queues = len(of.count)
        ranks = filled((queues, of.places), len(of.limits) + 1)
        q, kind = np.nonzero(of.first != of.nowhere)
        ranks[q, of.first[q, kind]] = of.limit[q, kind]
        self._none, self._no_limit = np.iinfo(of.job.dtype).max, np.iinfo(ranks.dtype).max
        self.queue = np.repeat(np.arange(queues), samples)
        self.rank = np.repeat(ranks, samples, axis=0)
        """(n, places) that of the time limit of the job there, where it is looked at"""
        self.at = np.repeat(of.first, samples, axis=0)
        """(n, kinds) the place of the first job that waits"""
        self.left = np.repeat(of.count, samples)
        """(n,) how many wait"""
        lists = (len(self.queue), of.lists)
        self.held = np.zeros(lists, dtype=bool)
        """(n, lists) whether the set of the list is held back"""
        self.first = np.full(lists, self._none, dtype=of.job.dtype)
        """(n, lists) the first job that is looked at"""
        self.stale = np.ones(lists, dtype=bool)
        """(n, lists) whether that is to be looked up"""
        self.of_chunk = self.rank.reshape(-1, of.chunks, of.width).min(axis=2)
        """(n, chunks) the least rank"""
        self.of_list = np.full(lists, self._no_limit, dtype=self.rank.dtype)
        """(n, lists)"""
        if of.lists:
            self.of_list = np.minimum.reduceat(self.of_chunk[:, :-1], of.chunks_from, axis=1)

    def first_of_lists(self, rows: Ints) -> Ints:
        """(n, lists) the first job of each list in these rows (n,) whose group is not held back."""
        n, lists = np.nonzero(self.stale[rows])
        if len(n):
            of = rows[n]
            self.first[of, lists] = self._first(of, lists, np.full(len(n), self._no_limit, dtype=self.rank.dtype))
            self.stale[of, lists] = False
        first = self.first[rows]
        return np.where(self.held[rows], self._none, first) if self._lists.large.any() else first

    def earliest(self, first: Ints) -> Ints:
        """(n,) the first of these jobs (n, lists), -1 where there is none."""
        found = first.min(axis=1, initial=self._none)
        return np.where(found == self._none, -1, found.astype(np.int64))

    def fitting(self, first: Ints, room: Floats, last: Ints) -> Ints:
        """The first jobs (n, lists) that fit in `room` (n, r) and are not behind `last` (n,)."""
        last = np.minimum(last, self._none - 1)
        near = int(np.searchsorted(self._lists.opens, last.max(initial=0), side="right"))
        fits = self._lists.fit(room, near)
        fits &= first[:, :near] <= last.astype(first.dtype)[:, None]
        return np.where(fits, first[:, :near], self._none)

    def any_fits(self, rows: Ints, room: Floats) -> Bools:
        """(n,) whether any job of these rows (n,) fits in `room` (n, r) whose group is not held back."""
        fits = self._lists.fit(room, self._lists.lists)
        return np.asarray((fits & (self.first_of_lists(rows) != self._none)).any(axis=1))

    def within(self, now: Floats, time: Floats) -> Ints:
        """(n,) how many of the time limits end a job by this time (n,) that starts now (n,)."""
        limits = np.concatenate([self._lists.limits, [np.inf]])
        found = np.searchsorted(self._lists.limits, time - now, side="right")
        while (more := now + limits[found] <= time).any():  # where the difference was rounded
            found += more
        while (fewer := (found > 0) & (now + limits[found - 1] > time)).any():
            found -= fewer
        return found

    def earliest_beside(self, rows: Ints, first: Ints, spare: Floats, within: Ints, last: Ints) -> Ints:
        """(n,) the first job in each of these rows (n,) that is in a list of these first ones (n, lists), that fits in
        `spare` (n, r) unless its time limit is one of the first `within` (n,), and that is not behind the job `last`
        (n,); -1 where there is none."""
        near = first.shape[1]
        beside = self._lists.fit(spare, near)
        found = np.where(beside, first, self._none).min(axis=1, initial=self._none)
        below = within.astype(self.rank.dtype)
        short = (self.of_list[rows, :near] < below[:, None]) & (first < found[:, None])
        n, lists = np.nonzero(short)
        if len(n):
            np.minimum.at(found, n, self._first(rows[n], lists, below[n]))
        return np.where(found > np.minimum(last, self._none - 1), -1, found.astype(np.int64))

    def limit_rank(self, rows: Ints, jobs: Ints) -> Ints:
        """(n,) that of the time limit of this job of each of these rows (n,), which waits."""
        q = self.queue[rows]
        return np.asarray(self._lists.limit[q, self._lists.kind_of[q, self._lists.place[q, jobs]]])

    def take(self, rows: Ints, jobs: Ints) -> None:
        """This job of each of these rows (n,), which is looked at, waits no more."""
        of, q = self._lists, self.queue[rows]
        place = of.place[q, jobs]
        kind, following = of.kind_of[q, place], of.next[q, place]
        self.at[rows, kind] = following
        self.rank[rows, place] = self._no_limit
        self.rank[rows, following] = np.where(following == of.nowhere, self._no_limit, of.limit[q, kind])
        chunk = place // of.width
        self._note_chunks(rows, chunk)
        more = np.flatnonzero(following != of.nowhere)
        if len(more):
            self._note_chunks(rows[more], following[more] // of.width)
        self._note_lists(rows, of.list_of[chunk])
        self.stale[rows, of.list_of[chunk]] = True
        self.left[rows] -= 1

    def turn_groups(self, turned: Turned) -> None:
        """These groups are held back from now on, or no longer."""
        of = self._lists
        if not len(turned.rows):
            return
        n, kinds = of.kinds_of.of(self.queue[turned.rows] * of.groups + turned.which)
        rows, held = turned.rows[n], turned.held[n]
        places = self.at[rows, kinds]
        some = np.flatnonzero(places != of.nowhere)
        rows, held, kinds, places = rows[some], held[some], kinds[some], places[some]
        ranks = of.limit[self.queue[rows], kinds]
        self.rank[rows, places] = np.where(held, self._no_limit, ranks)
        self._hide(rows[held], places[held], ranks[held])
        self._show(rows[~held], places[~held], ranks[~held])

    def turn_sets(self, turned: Turned) -> None:
        """These sets are held back from now on, or no longer."""
        n, lists = self._lists.lists_of.of(turned.which)
        self.held[turned.rows[n], lists] = turned.held[n]

    def drop(self, row: int, jobs: Ints) -> None:
        """These jobs of the row, and so all of their kinds, wait no more."""
        of, q = self._lists, self.queue[row]
        place = of.place[q, jobs]
        self.at[row, of.kind_of[q, place]] = of.nowhere
        self.rank[row, place] = self._no_limit
        self.of_chunk[row] = self.rank[row].reshape(of.chunks, of.width).min(axis=1)
        self.of_list[row] = np.minimum.reduceat(self.of_chunk[row, :-1], of.chunks_from)
        self.stale[row] = True
        self.left[row] -= len(jobs)

    def _first(self, rows: Ints, lists: Ints, below: Ints) -> Ints:
        """(n,) the first job of this list of each of these rows (n,) that is looked at with a time limit below this."""
        of = self._lists
        chunks = self._lists.chunks_of[lists]
        least = self.of_chunk.reshape(-1).take(chunks + (rows * of.chunks)[:, None])
        n = np.arange(len(rows))
        chunk = chunks[n, (least < below[:, None]).argmax(axis=1)]
        ranks = self.rank.reshape(-1, of.width).take(rows * of.chunks + chunk, axis=0)
        place = chunk * of.width + (ranks < below[:, None]).argmax(axis=1)
        return np.where(self.of_list[rows, lists] < below, of.job[self.queue[rows], place], self._none)

    def _hide(self, rows: Ints, places: Ints, ranks: Ints) -> None:
        """These jobs are not looked at any more."""
        of = self._lists
        chunks = places // of.width
        lists = of.list_of[chunks]
        first = np.flatnonzero(self.first[rows, lists] == of.job[self.queue[rows], places])
        self.stale[rows[first], lists[first]] = True
        least = np.flatnonzero(self.of_chunk[rows, chunks] == ranks)
        self._note_chunks(rows[least], chunks[least])
        of_lists = least[self.of_list[rows[least], lists[least]] == ranks[least]]
        self._note_lists(rows[of_lists], lists[of_lists])

    def _show(self, rows: Ints, places: Ints, ranks: Ints) -> None:
        """These jobs are looked at."""
        of = self._lists
        chunks = places // of.width
        lists = of.list_of[chunks]
        np.minimum.at(self.of_chunk.reshape(-1), rows * of.chunks + chunks, ranks)
        listed = rows * of.lists + lists
        np.minimum.at(self.of_list.reshape(-1), listed, ranks)
        np.minimum.at(self.first.reshape(-1), listed, of.job[self.queue[rows], places])

    def _note_chunks(self, rows: Ints, chunks: Ints) -> None:
        at = rows * self._lists.chunks + chunks
        self.of_chunk.reshape(-1)[at] = self.rank.reshape(-1, self._lists.width).take(at, axis=0).min(axis=1)

    def _note_lists(self, rows: Ints, lists: Ints) -> None:
        chunks = self._lists.chunks_of[lists] + (rows * self._lists.chunks)[:, None]
        self.of_list[rows, lists] = self.of_chunk.reshape(-1).take(chunks).min(axis=1)
