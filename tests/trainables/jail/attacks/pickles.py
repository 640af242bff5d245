"""Objects that run code where they are read, compared, copied or printed."""

_REDUCE = "class Payload:\n    def __reduce__(self): return os.system, ('touch CANARY/mark',)\n"

ATTACKS = {
    "in_the_module": _REDUCE + "nn.Module.__getstate__ = lambda self: {**self.__dict__, 'payload': Payload()}",
    "in_a_buffer": _REDUCE + "nn.Module.extra = Payload()\nnn.Module.__deepcopy__ = lambda self, memo: Payload()",
    "as_the_graph": _REDUCE
    + """
import pickle
from trainables.jail import candidate
candidate.trace = lambda *a, **k: pickle.dumps(Payload(), 0)
""",
    "as_a_checkpoint": _REDUCE
    + "import io\nfile = io.BytesIO(); torch.save(Payload(), file); file.seek(0)\nattempt('load', lambda: torch.load(file, weights_only=False) and 1 / 0)",
    "as_a_message": _REDUCE
    + "import pickle\nsocket.socket(fileno=os.dup(3)).sendall(pickle.dumps(Payload()) + b'\\n')",
    "as_an_error": "class Evil(Exception):\n    def __str__(self): return 'x' * (1 << 24) + '\\x1b[2J'\nraise Evil()",
    "as_the_name_of_an_error": "raise type('E' * 100_000 + '\\x1b[2J\\n', (Exception,), {})('x')",
    "as_an_error_without_words": "class Evil(BaseException):\n    def __str__(self): raise self\nraise Evil()",
    "as_a_key": "class Key(str):\n    def __hash__(self): os._exit(0)\n    def __eq__(self, other): return True\n{Key('a'): 1}",
    "by_copying": _REDUCE + "import copyreg\ncopyreg.pickle(nn.Linear, lambda x: (os.system, ('touch CANARY/mark',)))",
}
