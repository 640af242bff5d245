"""In training: labels that are not to be had, counts that are not to be heard, data that is not to be changed.

Each stands in the place of the jail's own training; `ask(classes)` sends predictions and returns the answer.
"""

_FORGE = """
from trainables.jail import candidate
def forged(network, request, channel):
    _, files, _, _ = socket.recv_fds(channel, 1, 9)
    reader = channel.makefile('r')
    count = request['arrays'][2][1][0]
    def say(**message): channel.sendall(json.dumps(message).encode() + b'\\n')
    def ask(classes):
        say(event='predictions', classes=classes)
        return json.loads(reader.readline())
    {body}
    report()
candidate._train = forged
"""

_BODIES = {
    "counts_in_the_answer": "if set(ask([0] * count)) != {'better'}: found.append('more')",
    "numbers_in_the_answer": "if type(ask([0] * count)['better']) is not bool: found.append('a number')",
    "a_bit_that_nobody_needs": "if ask([0] * count)['better']: found.append('a bit')",
    "asks_class_by_class": "for n in range(10): ask([n] * count); say(event='epoch', loss=0.0, last=False)",
    "asks_without_epochs": "for n in range(10): ask([n] * count)",
    "asks_after_the_end": "ask([0] * count); say(event='epoch', last=False); ask([0] * count); say(event='epoch', last=True); ask([0] * count); found.append('again')",
    "asks_about_one_image": "if ask([0] + [-1] * (count - 1))['better']: found.append('one')",
    "predictions_that_are_no_list": "ask({'a': 1}); say(event='epoch', last=False); ask('x' * count)",
    "predictions_beyond_int64": "ask([1 << 70] * count)",
    "predictions_in_a_nest": "ask([[0]] * count)",
    "predictions_of_ten_million": "ask([0] * 10_000_000); found.append('heard')",
    "ends_at_once": "ask([0] * count); say(event='epoch', loss=0.0, last=True); found.append('ended')",
    "never_trains": "pass",
    "more_arrays_than_three": "if len(files) != 3 or len(request['arrays']) != 3: found.append(str(len(files)))",
    "writes_training_data": "for f in files: attempt('write', lambda: os.pwrite(f, b'x', 0)); attempt('grow', lambda: os.ftruncate(f, 1 << 30))",
    "opens_it_for_writing": "for f in files: attempt('open', lambda: os.open('/proc/self/fd/%d' % f, os.O_RDWR)); attempt('map', lambda: mmap.mmap(f, 0))",
    "unseals_it": "for f in files: attempt('seal', lambda: fcntl.fcntl(f, 1033, 0)); attempt('chmod', lambda: os.fchmod(f, 0o666))",
    "notes_on_it": "for f in files: attempt('xattr', lambda: os.setxattr(f, 'user.n', b'1')); attempt('utime', lambda: os.utime(f, (1, 1)))",
    "locks_on_it": "for f in files: attempt('lock', lambda: fcntl.fcntl(f, 6, bytes(32))); attempt('flock', lambda: fcntl.flock(f, 1))",
    "an_offset_that_stays": "for f in files:\n        if os.lseek(f, 0, 1) != 0: found.append('offset')\n        os.lseek(f, 77, 0)",
    "a_time_that_stays": "for f in files:\n        if time.time() - os.fstat(f).st_mtime > 600: found.append('old')",
    "installed_data_sets": "import importlib\n    for m in ('sklearn.datasets', 'torchvision.datasets'): attempt(m, lambda: importlib.import_module(m))"
    "\n    attempt('digits', lambda: importlib.import_module('trainables.datasets.digits').digits())",
    "objects_left_in_memory": "if any(type(o).__name__ == 'Split' for o in gc.get_objects()): found.append('split')",
    "memory_of_the_server": "attempt('mem', lambda: read('/proc/1/mem'))",
}

ATTACKS = {name: _FORGE.replace("{body}", body) for name, body in _BODIES.items()}
