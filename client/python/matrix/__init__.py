"""The matrix: every public call of the package, and everything that may happen during it.

    python3 -m matrix.run --seed 1 --pairs 200
    python3 -m matrix.run --only group.all_reduce/block@self:peer_killed

`calls.py` lists the calls, `events.py` the events, and `rules.py` has one table that says what each
rank may do in each pair. Ranks are processes: `rank.py` is their program, and `template.py` forks
them. `scene.py` holds the ranks of one pair.
"""
