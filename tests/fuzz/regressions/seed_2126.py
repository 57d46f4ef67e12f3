# backend: eager
# differed in: exception ('NameError', "name 'undefined_name' is not defined") [None, None] ('NameError', "name 'undefined_name' is not defined") [None, 'KeyError']
from typing import NamedTuple
import torch
COUNT = 0
LOG = []
WEIGHT = torch.arange(6.0).reshape(2, 3) / 8

def tensor(seed, *shape):
    pass

class Box:
    made = 0

    def __init__(self, value, size=2):
        self.history = []
        Box.made += 1

class Counted(Box):
    pass

class Pair(NamedTuple):
    tensor: object = None

class Fault(Exception):
    pass

def f(t1, c2, p3):
    try:
        (-({'a': 1}['b'] if isinstance(Box(WEIGHT), Box) else t1.argmax().item())).absent()
    except Exception as error:
        LOG.append(repr(error))
        if f'{Pair(Box(WEIGHT).history.__len__())}'.startswith('a'):
            raise
    i4 = 4
    while i4:
        try:
            undefined_name
        except (KeyError, Fault, ZeroDivisionError) as error:
            LOG.append(error.args)
        if torch.ones(2, 3).bool().all().item():
            continue
    else:
        try:

            def fn5(t6, *, t7=({'w': WEIGHT} | {'u': torch.ones(2, 3)}).get('w', getattr(Box(WEIGHT), 'value')).masked_fill(t1 == t1, torch.tensor(1.5).abs().item())):
                with Box(t1) as x8:
                    t7.zero_()
                    LOG.append([][i4])
                dt9 = {k: v * 2 for k, v in {**{'w': WEIGHT}, 'w': t6}.items()}
                return {**dt9, 'w': t6}.get('w', t6)
            LOG.append('key'.split('a')[0])
        finally:
            dt10 = {**{f'k{i}': t for i, t in enumerate([t + u for t, u in zip([WEIGHT], [WEIGHT])])} | {'w': WEIGHT}, 'w': t1}
            print(list(reversed([])), {k: v for k, v in {'a': i4, 'b': len(set([]) & {1, 2})}.items() if v > 0})
        print(str(0))
ARGUMENTS = [lambda: [tensor(0), Counted(tensor(0), 2), (0, tensor(0))], lambda: [tensor(1), Counted(tensor(1), 2), (1, tensor(1))], lambda: [tensor(2), Counted(tensor(2), 2), (2, tensor(2))]]
