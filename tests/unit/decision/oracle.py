#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the decision room with Python's own json, repr and math, on generated bodies.

    oracle.py TOOL DATA [--seed N] [--count N]

TOOL is answer_frames; DATA the folder with the unpacked tests/data. Everything that the contract
says of a body is written here a second time, over json.loads and json.dumps. Prints the first
bodies on which the two differ, and exits 1.
"""
import argparse
import json
import math
import random
import re
import struct
import subprocess
import sys

MODEL = "cua-s1-4b-0.2"
MOST_LEVELS = 127
MOST_DIGITS = 4300

SYSTEM = (
    "You are a one-pass computer-use decision model. You are shown the current state of a screen and "
    "a fixed, closed list of candidate (element, action) options, each given a single letter. Choose "
    "exactly one option: the single best next action to take. Answer with ONLY that option's letter "
    "-- no words, no punctuation, no explanation.")

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)  # the limit is checked here


class Refused(Exception):
    def __init__(self, status, *words):
        super().__init__(status, *words)
        self.status = status
        self.words = words  # what the message must hold


# --- JSON -> tree -------------------------------------------------------------------------------

def parse_float(text):
    value = float(text)
    if math.isinf(value):
        raise Refused(400, "range")
    return value


def parse_int(text):
    if len(text.lstrip("-")) > MOST_DIGITS:
        raise Refused(400, str(MOST_DIGITS))
    return int(text)


def parse_constant(_):
    raise Refused(400)


def members(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = {key for key in keys if keys.count(key) > 1}
        raise Refused(400, 'twice', *map(short, repeated if len(repeated) == 1 else ()))
    return found


LEXEME = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{\]}]', re.S)


def levels(text):
    depth = deepest = 0
    for lexeme in LEXEME.findall(text):
        if lexeme in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif lexeme in "]}":
            depth -= 1
    return deepest


def strings(value):
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from item
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def parse(body):
    try:
        text = body.decode("utf-8")
        if levels(text) > MOST_LEVELS:
            raise Refused(400)
        value = json.loads(text, parse_float=parse_float, parse_int=parse_int,
                           parse_constant=parse_constant, object_pairs_hook=members)
        for string in strings(value):
            string.encode("utf-8")  # fails on a lone surrogate
    except (ValueError, RecursionError):
        raise Refused(400) from None
    return value


# --- tree -> questions --------------------------------------------------------------------------

def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def text_of(value):
    return value if isinstance(value, str) else dumps(value)


def is_text(value):
    return isinstance(value, (str, dict, list))


class Question:
    def __init__(self, name, question):
        if not isinstance(question, dict):
            raise Refused(422, short(name), "object")
        kind = question.get("type")
        if kind in ("score", "noul") and isinstance(kind, str):
            raise Refused(422, short(name), kind, "not supported")
        if kind != "choice":
            raise Refused(422, short(name), "unknown type")
        if "instructions" not in question:
            raise Refused(422, short(name), "instructions")
        goal = question["instructions"]
        if goal is not None and not is_text(goal):
            raise Refused(422, short(name), "instructions")
        criteria = question.get("criteria")
        if not isinstance(criteria, dict) or not 1 <= len(criteria) <= 26:
            raise Refused(422, short(name), "criteria")
        for key, label in criteria.items():
            if label is not None and not is_text(label):
                raise Refused(422, short(name), short(key))
        self.name = name
        self.goal = "" if goal is None else text_of(goal)
        self.keys = list(criteria)
        self.labels = [dumps(key if label is None else text_of(label))[1:-1]
                       for key, label in criteria.items()]

    def prompt(self, state):
        lines = ["<|im_start|>system", SYSTEM + "<|im_end|>", "<|im_start|>user"]
        if self.goal:
            lines += ["Goal: " + self.goal, ""]
        lines += ["App: Cua Driver", "Task family: closed-candidate decision", "",
                  "Accessibility tree:", state, "", "Options:"]
        lines += ['%s. Decision "%s" -> select' % pair
                  for pair in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", self.labels)]
        lines += ["", "Answer with a single letter.<|im_end|>", "<|im_start|>assistant", "<think>", ""]
        return "\n".join(lines)


def short(text):
    """How a message shows the beginning of a client's text."""
    return ''.join(dumps(c)[1:-1] if c < ' ' else c for c in text[:15])


def request_of(body):
    """State and questions, or Refused."""
    request = parse(body)
    if not isinstance(request, dict):
        raise Refused(400, "object")
    if not isinstance(request.get("model"), str) or request["model"] != MODEL:
        raise Refused(422, "model", MODEL)
    state = request.get("state")
    if not is_text(state) or not state:
        raise Refused(422, "state")
    questions = request.get("questions")
    if not isinstance(questions, dict) or not questions:
        raise Refused(422, "questions")
    if len(questions) > 64:
        raise Refused(413, str(len(questions)), "64")
    return text_of(state), [Question(*item) for item in questions.items()]


# --- probabilities -> answer --------------------------------------------------------------------

def fp32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def softmax(logits):
    exps = [math.exp(logit - max(logits)) for logit in logits]
    total = math.fsum(exps)
    return [fp32(e / total) for e in exps]


def confidence(probabilities):
    if len(probabilities) == 1:
        return 1.0
    entropy = 0.0
    for p in probabilities:
        if p > 0:
            entropy -= p * math.log(p)
    return max(0.0, 1.0 - entropy / math.log(len(probabilities)))


def answer_of(questions, scores):
    answers = {}
    for question, (probabilities, best, _) in zip(questions, scores):
        answers[question.name] = {
            "type": "choice", "choice": question.keys[best],
            "probabilities": dict(zip(question.keys, probabilities)),
            "confidence": confidence(probabilities)}
    usage = {"input_tokens": sum(tokens for _, _, tokens in scores), "output_tokens": 0}
    return json.dumps({"model": "test/model", "answers": answers, "usage": usage},
                      ensure_ascii=False, separators=(",", ":"))


# --- generated bodies ---------------------------------------------------------------------------

class Generator:
    """Writes JSON text directly, so that spellings vary as clients' do."""

    CHARACTERS = ['a', 'B', '0', ' ', '/', "'", '\x7f', '\x80', '\xa0', '\u00e9', '\u0301', '\u2028',
                  '\u2029', '\ufeff', '\ufffd', '\uffff', '\ufdd0', '\u4e2d', '\ud7ff', '\ue000',
                  '\U0001f600', '\U0010ffff', '\U00010000', '\u200d', '<', '>', '&']
    ESCAPES = ['\\"', '\\\\', '\\/', '\\b', '\\f', '\\n', '\\r', '\\t', '\\u0000', '\\u001F', '\\u001f',
               '\\u007f', '\\u0041', '\\u00e9', '\\u2028', '\\uD83D\\uDE00', '\\ud800\\udc00',
               '\\uDBFF\\uDFFF', '\\uFEFF', '\\uffff']
    WORDS = ['state', 'Click "OK"', '<|im_end|>', '<think>', 'Goal: x', 'null', '3', '[]']
    NUMBERS = ['0', '-0', '-0.0', '0.0', '0e0', '0E+9', '-0e-5', '1', '-1', '1.10', '1e5', '1E5', '1e16',
               '9999999999999998.0', '1e15', '123456789012345678.0', '0.0001', '0.00001', '1e-5',
               '1.5e-5', '5e-324', '4.9e-324', '2.4703282292062327e-324', '2.4703282292062328e-324',
               '2.2250738585072014e-308', '2.2250738585072011e-308', '2.225073858507201e-308',
               '1.7976931348623157e308', '1.7976931348623158e308', '9007199254740993.0',
               '9007199254740992.9999', '100000000000000000000.0', '123456789012345678901234567890',
               '-9223372036854775808', '9223372036854775807', '9223372036854775808',
               '18446744073709551615', '18446744073709551616', '1e-400', '-1e-400', '1e-99999999999',
               '-1e-99999999999', '0e99999999999', '0.0E99999999999999999999', '0.1', '0.3', '2.675',
               '1e22', '1e23', '8.5e22', '7.2057594037927933e16', '0.30000000000000004', '1e21', '1e20',
               '1.0e+2', '1e0005', '1e-0005', '12345678901234567890.123456789012345678901234567890',
               '0.000000000000000000000000000000000000000000000000000000000001e60']

    def __init__(self, seed):
        self.random = random.Random(seed)

    def blank(self):
        return self.random.choice(['', '', '', '', ' ', '\n', '\t', '\r\n', '  '])

    def characters(self, most=12):
        parts = []
        for _ in range(self.random.randrange(most)):
            kind = self.random.random()
            if kind < 0.45:
                parts.append(self.random.choice('abcdefghij klmno'))
            elif kind < 0.65:
                parts.append(self.random.choice(self.CHARACTERS))
            elif kind < 0.85:
                parts.append(self.random.choice(self.ESCAPES))
            elif kind < 0.9:
                parts.append(json.dumps(self.random.choice(self.WORDS))[1:-1])
            elif kind < 0.95:
                parts.append('\\u%04x' % self.random.randrange(0x800))
            else:
                point = self.random.randrange(0x20, 0x110000)
                if point in (0x22, 0x5c) or 0xd800 <= point < 0xe000:
                    point = 0x263a
                parts.append(chr(point))
        if self.random.random() < 0.02:  # longer than the parser's buffer for escaped text
            parts *= self.random.randrange(1, 400)
        return ''.join(parts)

    def string(self):
        return '"' + self.characters() + '"'

    def number(self):
        kind = self.random.random()
        if kind < 0.3:
            return self.random.choice(self.NUMBERS)
        if kind < 0.5:  # any double
            while True:
                value = struct.unpack('<d', self.random.getrandbits(64).to_bytes(8, 'little'))[0]
                if math.isfinite(value):
                    return self.random.choice(['%r', '%.17e', '%.20g', '%.3e']) % value
        if kind < 0.65:  # exactly between two doubles, or near it
            value = math.ldexp(self.random.getrandbits(53) | 1 << 52, self.random.randrange(-1074, 900))
            half = math.ulp(value) / 2
            digits = '%d' % (int(value) + int(half)) if value > 1e17 else '%.60g' % value
            return digits + self.random.choice(['.0', '.5', '.000000000000001', 'e0', 'e1']) \
                if digits.isdigit() else digits
        if kind < 0.8:
            digits = self.random.choice([1, 2, 5, 15, 16, 17, 18, 19, 20, 21, 30, 50])
            return '%s%d' % (self.random.choice(['', '-']), self.random.randrange(10 ** digits))
        whole = str(self.random.randrange(10 ** self.random.randrange(1, 25)))
        part = ''.join(self.random.choices('0123456789', k=self.random.randrange(1, 25)))
        text = self.random.choice(['', '-']) + whole
        if self.random.random() < 0.8:
            text += '.' + part
        if self.random.random() < 0.6:
            text += self.random.choice('eE') + self.random.choice(['', '+', '-']) \
                + str(self.random.randrange(self.random.choice([3, 30, 310])))
        return text

    def container(self, begin, end, parts):
        inside = (self.blank() + ',' + self.blank()).join(parts)
        return begin + self.blank() + inside + self.blank() + end

    def array(self, depth):
        return self.container('[', ']', [self.value(depth - 1)
                                         for _ in range(self.random.randrange(4))])

    def object(self, depth):
        keys = {}
        for _ in range(self.random.choice([0, 1, 1, 2, 2, 3, 4, 10 if depth > 2 else 1])):
            key = self.string()
            keys[json.loads(key)] = key
        if keys and self.random.random() < 0.01:  # once more, perhaps spelled otherwise
            again = self.random.choice(list(keys))
            keys[0] = self.random.choice([keys[again], json.dumps(again)])
        return self.container('{', '}', [key + self.blank() + ':' + self.blank() + self.value(depth - 1)
                                         for key in keys.values()])

    def value(self, depth):
        kind = self.random.random()
        if depth > 0 and kind < 0.25:
            return self.array(depth)
        if depth > 0 and kind < 0.5:
            return self.object(depth)
        if kind < 0.7:
            return self.number()
        if kind < 0.9:
            return self.string()
        return self.random.choice(['true', 'false', 'null'])

    def text_field(self):
        kind = self.random.random()
        if kind < 0.4:
            return self.string()
        if kind < 0.7:
            return self.object(4)
        if kind < 0.97:
            return self.array(4)
        return self.value(1)

    def question(self):
        options = []
        for i in range(self.random.choice([1, 1, 2, 3, 3, 5, 10, 25, 26, 26, 27])
                       if self.random.random() < 0.9 else self.random.randrange(30)):
            key = '"%d%s"' % (i, self.characters(4))
            label = 'null' if self.random.random() < 0.3 else self.text_field() \
                if self.random.random() < 0.3 else self.string()
            options.append(key + ':' + label)
        instructions = self.random.choice([self.text_field, lambda: '""', lambda: 'null'])()
        fields = ['"type":"choice"', '"instructions":' + self.blank() + instructions,
                  '"criteria":' + self.container('{', '}', options)]
        if self.random.random() < 0.05:
            fields[self.random.randrange(3)] = self.random.choice(
                ['"type":"score"', '"type":"noul"', '"type":"Choice"', '"type":' + self.value(1),
                 '"criteria":' + self.value(1), '"other":1'])
        if self.random.random() < 0.2:
            fields.append('"\\u0000other":' + self.value(2))
        self.random.shuffle(fields)
        return self.container('{', '}', fields)

    def request(self):
        count = self.random.choice([1, 1, 1, 1, 2, 3, 8])
        if self.random.random() < 0.005:
            count = self.random.choice([0, 63, 64, 65])
        questions = ['"%d%s":%s' % (i, self.characters(4), self.question()) for i in range(count)]
        fields = ['"model":"%s"' % MODEL, '"state":' + self.blank() + self.text_field(),
                  '"questions":' + self.container('{', '}', questions)]
        if self.random.random() < 0.03:
            fields[self.random.randrange(3)] = self.random.choice(
                ['"model":' + self.value(1), '"state":' + self.value(1), '"questions":' + self.value(1),
                 '"questions":{"q":%s}' % self.value(1), '"x":' + self.value(3)])
        if self.random.random() < 0.2:
            fields.append('"extra":' + self.value(5))
        self.random.shuffle(fields)
        text = self.blank() + self.container('{', '}', fields) + self.blank()
        body = text.encode('utf-8')
        if self.random.random() < 0.35:
            body = self.damage(body)
        return body

    BYTES = [b'', b',', b'"', b'\\', b'{', b'}', b'[', b']', b':', b'0', b'-', b'.', b'e', b'E9', b'+',
             b'\0', b'\x01', b'\x1f', b'\x0b', b'\x0c', b'\xa0', b'\xc2\xa0', b'\xff', b'\xc0\x80', b'\xed\xa0\x80',
             b'\xed\xb0\x80', b'\xf4\x90\x80\x80', b'\xe2\x82', b'\xf0\x9f\x98', b'\xef\xbb\xbf',
             b'\\ud800', b'\\udc00', b'\\ud83d\\u0041', b'\\ud83d\\ud83d', b'\\udE00\\ud83D', b'\\x', b"\\'",
             b'\\u00g0', b'\\u12', b'\\U0041', b'NaN', b'Infinity', b'-Infinity', b'nan', b'1e400', b'-1e999',
             b'1e99999999999', b'01', b'.5', b'1.', b'0x10', b'tru', b'True', b'None', b'//', b'/**/',
             b'undefined', b"'", b' ', b'\n', b'\t']

    def damage(self, body):
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            at = self.random.randrange(len(body) + 1)
            kind = self.random.random()
            if kind < 0.5:
                body = body[:at] + self.random.choice(self.BYTES) + body[at:]
            elif kind < 0.7:
                body = body[:at] + body[at + self.random.choice([1, 1, 2, 5]):]
            elif kind < 0.8:
                body = body[:at] + bytes([self.random.randrange(256)]) + body[at + 1:]
            elif kind < 0.9:
                body = body[:at]
            else:
                end = self.random.randrange(at, min(len(body), at + 40) + 1)
                body = body[:end] + body[at:end] + body[end:]
        return body


def stringy(body):
    """A request that is accepted if and only if this body's bytes are one JSON value."""
    return b'{"model":"%s","state":[' % MODEL.encode() + body + \
        b'],"questions":{"q":{"type":"choice","instructions":"","criteria":{"a":null}}}}'


def fixed_bodies():
    """What random bodies seldom meet: each as a value inside a request, and as a whole body."""
    numbers = Generator.NUMBERS + [
        '1e400', '-1e400', '1e99999999999', '1' + '0' * 4299, '-1' + '0' * 4299, '1' + '0' * 4300,
        '-1' + '0' * 4300, '1' * 4301 + '.0', '1' * 4301 + 'e0', '0.' + '1' * 5000, '1' * 309 + '.5',
        '0.' + '0' * 700000 + 'E700000', '0.' + '0' * 65540 + '1e655400', '1' + '0' * 65540 + '.0e-655400', '0.' + '0' * 700000 + '15e700001', '1' + '0' * 70000 + 'e-70000',
        '9' * 400 + 'e-100', '0.' + '0' * 400 + '1', '1e-2147483648', '1e2147483648', '-0e2147483648',
        '1.5E-2147483647', '1e-4294967296', '1e-18446744073709551616', '0.5e-9223372036854775808',
        '1e000000000000000000000000000001', '2e-00000000000000000000000000000000000000001',
        '17976931348623157' + '0' * 292 + '.0', '17976931348623159' + '0' * 292 + '.0',
        '179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017977587'
        '207096330286416692887910946555547851940402630657488671505820681908902000708383676273854845817711'
        '531764475730270069855571366959622842914819860834936475292719074168444365510704342711559699508093'
        '042880.0', '-', '+1', '01', '-01', '00', '1.', '.5', '1.e5', '1e', '1e+', '1e-', '1E', '0x10', '1_0',
        '--1', '1e5.0', '1..0', '0e', '0.e1', '1 2', 'Infinity', '-Infinity', 'NaN', '-NaN', 'inf', '1f',
        '\u0661', '1,', ',1', '']
    for number in numbers:
        yield stringy(number.encode())
        yield number.encode()
        yield b'{"a":' + number.encode()
        # Near the end of the buffer, and far from it, the parser takes different paths.
        yield stringy(number.encode() + b',' + number.encode() + b' ' * 40)
    for unit in range(0xd7f0, 0xe010, 5):
        for tail in ('', 'x', '\\u0041', '\\ud800', '\\udbff', '\\udc00', '\\udfff', '\\ue000', '\\n', '\\'):
            yield stringy(('"\\u%04x%s"' % (unit, tail)).encode())
            yield stringy(('{"\\u%04X%s":1}' % (unit, tail)).encode())
    for byte in range(256):
        yield stringy(b'"' + bytes([byte]) + b'"')
        yield stringy(b'"\\' + bytes([byte]) + b'"')
        yield stringy(b'{"' + bytes([byte]) + b'":1}')
        yield stringy(b'1' + bytes([byte]))
        yield bytes([byte])
        yield bytes([byte]) + stringy(b'1')
        yield stringy(b'1') + bytes([byte])
        for second in (0x00, 0x22, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff):
            yield stringy(b'"' + bytes([byte, second]) + b'"')
            yield stringy(b'"' + bytes([byte, second, 0x80]) + b'"')
            yield stringy(b'"\\n' + bytes([byte, second, 0x80, 0x80]) + b'"')
            yield stringy(b'"' + b'x' * 30 + bytes([byte, second, 0x80, 0x80]) + b'x' * 30 + b'"')
            yield stringy(b'"' + bytes([byte, second, 0xbf, 0x22, 0x22]) + b'"')
    for point in list(range(0, 0x3000, 7)) + list(range(0x3000, 0x110000, 1021)):
        if not 0xd800 <= point < 0xe000 and chr(point) not in '"\\' and point >= 0x20:
            yield stringy(('"' + chr(point) + '"').encode())
    for end in range(0, 600):  # around the size of the parser's buffer for escaped text
        yield stringy(b'"' + b'x' * end + b'\\n' + b'\xf0\x9f\x98\x80' * (end % 3) + b'\\ud83d\\ude00"')
        yield stringy(b'{"\\t' + b'y' * end + b'\xc3\xa9\\u00e9":1,"\\t' + b'y' * end + b'\\u00e9\xc3\xa9":2}')
    for depth in (1, 120, 124, 125, 126, 127, 128, 129, 1000, 100000):
        for begin, end in (('[', ']'), ('{"a":', '}'), ('{"a":[', ']}')):
            inner = begin * depth + ('1' if begin.endswith(':') else '') + end * depth
            yield stringy(inner.encode())
            yield inner.encode()
            yield (begin * depth).encode()
    for encoding in ('utf-16', 'utf-16-le', 'utf-16-be', 'utf-32', 'utf-8-sig'):
        yield stringy(b'"x"').decode().encode(encoding)
    yield stringy('"\u4e2d\u6587"'.encode('gbk'))
    whole = stringy(b'{"a":[true,false,null,-1.5e3,"x\\ud83d\\ude00\\n\xc3\xa9"]}')
    for end in range(len(whole)):
        yield whole[:end]


SIX = ['null', 'true', 'false', '3', '2.5', '"text"', '""', '[]', '["x"]', '{}', '{"k":"v"}', None]


def typed_bodies():
    """Every field with each of the JSON types, and missing."""
    def write(fields):
        return '{' + ','.join('"%s":%s' % item for item in fields.items() if item[1] is not None) + '}'

    for field in ('model', 'state', 'questions', 'question', 'type', 'instructions', 'criteria', 'label'):
        for value in SIX:
            criteria = {'a': value if field == 'label' else '"A"', 'b': '"B"'}
            question = {'type': '"choice"', 'instructions': '"go"', 'criteria': write(criteria)}
            questions = {'q': None, 'r': write(question)}
            if field in question:
                question[field] = value
            questions['q'] = value if field == 'question' else write(question)
            request = {'model': '"%s"' % MODEL, 'state': '"s"', 'questions': write(questions)}
            if field in request:
                request[field] = value
            yield write(request).encode()


def sample_bodies(data):
    with open(data + '/requests/systemone-samples.jsonl', encoding='utf-8') as file:
        lines = [line.rstrip('\n') for line in file]
    for line in lines:
        text = line[line.index('"request": ') + len('"request": '):line.rindex(', "prompt_tokens": ')]
        assert json.loads(text) == json.loads(line)['request']
        yield text.encode('utf-8')


# --- the comparison -----------------------------------------------------------------------------

class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, strings_in):
        message = struct.pack('<I', len(strings_in))
        for string in strings_in:
            message += struct.pack('<I', len(string)) + string
        self.process.stdin.write(message)
        self.process.stdin.flush()
        return [self.read(self.number()) for _ in range(self.number())]

    def number(self):
        return struct.unpack('<I', self.read(4))[0]

    def read(self, size):
        data = self.process.stdout.read(size)
        if len(data) != size:
            sys.exit('the tool ended: exit status %s' % self.process.wait())
        return data


def scores_of(questions, chance):
    scores = []
    for question in questions:
        spread = chance.choice([0.0, 1e-3, 1.0, 10.0, 100.0, 1000.0])
        logits = [fp32(chance.gauss(0, spread)) for _ in question.keys]
        if chance.random() < 0.2:
            logits = [fp32(chance.choice([1000.0, 1001.0])) for _ in question.keys]
        scores.append((softmax(logits), logits.index(max(logits)), chance.randrange(1, 20000)))
    return scores


def compare(tool, body, chance):
    """None, or what differs."""
    try:
        state, questions = request_of(body)
    except Refused as refused:
        got = tool.ask([body])
        if got[0].decode() != str(refused.status):
            return 'expected status %d, got %r' % (refused.status, got[:2])
        detail = json.loads(got[1].decode('utf-8'))  # strict: no ill-formed byte
        if list(detail) != ['detail'] or not isinstance(detail['detail'], str):
            return 'not a detail: %r' % got[1]
        if len(detail['detail']) > 400:
            return 'a detail of %d characters' % len(detail['detail'])
        for word in refused.words:
            # Half a pair is met while parsing, and afterwards by the oracle.
            if word not in detail['detail'] and 'surrogate' not in detail['detail']:
                return 'expected %r in %r' % (word, detail['detail'])
        return None
    scores = scores_of(questions, chance)
    message = [body]
    for probabilities, best, tokens in scores:
        message += [struct.pack('<%df' % len(probabilities), *probabilities), str(best).encode(),
                    str(tokens).encode()]
    expected = ['200', state, answer_of(questions, scores)]
    for question in questions:
        expected += [question.name, str(len(question.keys)), question.prompt(state)]
    got = tool.ask(message)
    expected = [string.encode('utf-8') for string in expected]
    if got == expected:
        return None
    for mine, theirs in zip(expected, got):
        if mine != theirs:
            at = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b),
                      min(len(mine), len(theirs)))
            return 'expected %r, got %r' % (mine[max(0, at - 60):at + 60], theirs[max(0, at - 60):at + 60])
    return 'expected %d strings, got %d: %r' % (len(expected), len(got), got[:2])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument('tool')
    arguments.add_argument('data')
    arguments.add_argument('--seed', type=int, default=20260101)
    arguments.add_argument('--count', type=int, default=6000)
    options = arguments.parse_args()

    tool = Tool(options.tool)
    chance = random.Random(options.seed)
    generator = Generator(options.seed)
    faults = 0
    tally = {}
    sources = [('samples', sample_bodies(options.data)), ('types', typed_bodies()),
               ('fixed', fixed_bodies()),
               ('random', (generator.request() for _ in range(options.count)))]
    for name, bodies in sources:
        for body in bodies:
            difference = compare(tool, body, chance)
            try:
                request_of(body)
                status = 200
            except Refused as refused:
                status = refused.status
            tally[name, status] = tally.get((name, status), 0) + 1
            if difference:
                faults += 1
                if faults <= 20:
                    shown = body if len(body) < 600 else body[:300] + b' ... ' + body[-300:]
                    print('%s: %s\n  body %r' % (name, difference[:400], shown))
    print(', '.join('%s %d: %d' % (*key, value) for key, value in tally.items()))
    # Each kind of body must have been met, or the comparison says nothing.
    for key, least in ((('samples', 200), 71), (('types', 422), 50), (('types', 200), 20),
                       (('fixed', 200), 1000), (('fixed', 400), 1000),
                       (('random', 200), options.count // 4), (('random', 400), options.count // 8),
                       (('random', 422), options.count // 100)):
        if tally.get(key, 0) < least:
            faults += 1
            print('only %d of %s %d' % (tally.get(key, 0), *key))
    print('%d differences' % faults)
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
