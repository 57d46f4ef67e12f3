# backend: eager
# differed in: bug AttributeError emit.py:146)
import functools
import operator
import re
import torch
WEIGHT = torch.arange(6.0).reshape(2, 3) / 8

def tensor(seed, *shape):
    return torch.rand(shape or (2, 3), generator=torch.Generator().manual_seed(seed)) * 4 - 2

class Box:
    made = 0

    def __init__(self, value, size=2):
        self.value = value

def f(t1, l2, d3, z4, b5):
    l2.sort(key=lambda q: (t1.flip(0).flip(0).sum() * q).item())
    i6, t7 = (0, Box([*[WEIGHT], t1][-1], size=len([WEIGHT])).value)
    while True:
        if t7.max() < round(2.0 * 2, 1) or i6 > 3:
            break
        t7 = t7 / 2 - 0.1
    s9 = re.sub('[a-z]', lambda m: str(len(LOG)) + str(t8.shape[0]), 'a' if b5 else 'b')
ARGUMENTS = [lambda: [tensor(0), list(range(0 % 4 + 1)), {'a': 1}, tensor(0, 1).sum(), True], lambda: [tensor(1), list(range(1 % 4 + 1)), {'a': 1}, tensor(1, 1).sum(), True], lambda: [tensor(2), list(range(2 % 4 + 1)), {'a': 1}, tensor(2, 1).sum(), True]]
