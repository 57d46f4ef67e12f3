"""Where the ways from a jump join, which tests are those of loops, and which ways only raise."""

from thruway.bytecode.decode import decode
from thruway.bytecode.flow import comes_back, joins, only_raises


def sides(x, y):
    if x:
        y = y + 1
    else:
        y = y - 1
    print(y)
    return y


def returns(x):
    if x > 0:
        return 1
    return 2


def loops(x):
    while x:
        x = x - 1
    return x


def leaves(xs):
    for x in xs:
        if x:
            break
    return xs


def checks(x):
    if x:
        raise ValueError(f"{x}")
    return x


def checks_and_handles(x):
    try:
        if x:
            raise ValueError(x)
    except ValueError:
        return 1
    return x


def jumps(function):
    """The conditional jumps of a function, and what follows each."""
    instructions = decode(function.__code__).instructions
    return [(i, (i + 1, one.target)) for i, one in enumerate(instructions) if "JUMP" in one.op and "IF" in one.op]


def test_sides_join_at_what_follows_both():
    (index, after), *_ = jumps(sides)
    join = joins(sides.__code__)[index]
    assert join is not None and join > max(after)
    assert decode(sides.__code__).instructions[join].position[0] == sides.__code__.co_firstlineno + 5
    assert joins(returns.__code__)[jumps(returns)[0][0]] is None


def test_the_test_of_a_loop_comes_back():
    assert any(comes_back(loops.__code__, index) for index, _ in jumps(loops))
    assert all(comes_back(leaves.__code__, index) for index, _ in jumps(leaves))
    assert not any(comes_back(function.__code__, index) for function in (sides, returns, checks) for index, _ in jumps(function))


def test_what_only_raises():
    index, after = jumps(checks)[0]
    assert sorted(only_raises(checks.__code__, one) for one in after) == [False, True]
    assert joins(checks.__code__)[index] in after
    _, after = jumps(checks_and_handles)[0]
    assert not any(only_raises(checks_and_handles.__code__, one) for one in after)
