# SPDX-License-Identifier: Apache-2.0
"""Strings that a tokenizer may get wrong, by kind, from a seed. Code points of Unicode 14 only."""

import random
import unicodedata

UNICODE = "14.0.0"
MARKS = ("Mn", "Mc", "Me")


def by_category():
    """Category -> code points of Unicode 14. Of the unassigned ones, which a later version may
    assign, only noncharacters and three from each empty plane."""
    categories = {}
    for point in range(0x110000):
        category = unicodedata.category(chr(point))
        if category == "Cs":
            continue
        if category == "Cn":
            noncharacter = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF
            if not noncharacter and not (4 <= point >> 16 <= 13 and point & 0xFFFF in (0, 7, 0x8000)):
                continue
        categories.setdefault(category, []).append(point)
    return categories


EMOJI = [
    "\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466", "\u2764\uFE0F",
    "\u2764\uFE0F\u200D\U0001F525", "\U0001F44D\U0001F3FD", "\U0001F1E9\U0001F1EA", "1\uFE0F\u20E3",
    "#\uFE0F\u20E3", "\U0001F3F4\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F",
    "\U0001F469\U0001F3FF\u200D\U0001F680", "\u263A", "\u2600\uFE0E", "\U0001F9D1\u200D\U0001F9B0",
]
WORDS = {
    "latin": "the quick Brown fox isn't HERE don't they'll we've I'm you're he'd o'clock "
    "naïve café Straße ſo’s it’s Ångström İstanbul ﬁne ĳs Việt Nam ŉ".split(),
    "cjk": "你好世界 今天天气很好 我们 中华人民共和国 東京都 こんにちは カタカナ ﾊﾝｶｸ 漢字かな交じり文 "
    "안녕하세요 대한민국 ㄱㄴㄷ 一二三 。 ， 、 「 」 ！ 々 〇".split(),
    "other": "Здравствуйте мир Καλημέρα κόσμε שָׁלוֹם مرحبا بِسْمِ नमस्ते क्षत्रिय ภาษาไทย กำลัง မြန်မာ ខ្មែរ "
    "தமிழ் ಕನ್ನಡ తెలుగు ሰላም ᏣᎳᎩ བོད་ཡིག ქართული".split(),
    "code": "if(x==1){return;} std::vector<int> a[i]; // TODO /* */ def f(self): -> :: != <= && || += "
    "0x1F 3.14e-10 #include <stdio.h> \"str\\n\" 'c' @app.route(\"/\") ${HOME} </div> <a href= "
    "```python _private __init__ camelCase SCREAMING_CASE kebab-case a.b.c() => ... ;; --flag".split(),
}
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\r\n\r\n", " \n", "\n ", "\u00A0",
          "\u3000", "\u2028", "\u2029", "\u0085", "\u180E", "\u200B", "\u1680", "\x0b", "\x0c",
          "\ufeff", "\u202f", "\x1c", "\x1f"]
CONTRACTIONS = ["'" + s for s in ("s", "S", "t", "T", "re", "RE", "rE", "ve", "Ve", "m", "M", "ll",
                                  "lL", "LL", "d", "D", "\u017f", "\u017ft", "k", "\u212a", "r", "l",
                                  "v", "", "'s", "st", "ss", "\u1e9e")]


class Strings:
    def __init__(self, seed, added_tokens, vocabulary):
        """added_tokens: their spellings; vocabulary: texts of tokens, to be joined at random."""
        self.random = random.Random(seed)
        self.added_tokens = added_tokens
        self.vocabulary = vocabulary
        self.categories = by_category()
        self.marks = [c for k in MARKS for c in self.categories[k]]
        self.composed = [c for k in self.categories for c in self.categories[k]
                         if unicodedata.normalize("NFD", chr(c)) != chr(c)]
        self.jamo = [*range(0x1100, 0x1200), *range(0xA960, 0xA97D), *range(0xD7B0, 0xD7FC)]

    def pick(self, items, most, least=1):
        return [self.random.choice(items) for _ in range(self.random.randint(least, most))]

    def points(self, points, most):
        return "".join(map(chr, self.pick(points, most)))

    def every_code_point(self, step=16):
        """Each code point in a few surroundings."""
        everything = [c for k in sorted(self.categories) for c in self.categories[k] if k != "Co"]
        everything += self.categories["Co"][:200] + self.categories["Co"][-200:]
        for i in range(0, len(everything), step):
            part = [chr(c) for c in everything[i:i + step]]
            yield "".join(f"{c} {c}a{c}1 '{c}\n" for c in part)

    def category(self):
        name = self.random.choice(sorted(self.categories))
        points = self.categories[name]
        text = ""
        for _ in range(self.random.randint(1, 6)):
            text += self.points(points, 6)
            text += self.random.choice(["", "", " ", "a", "1", ".", "\n", "'s", "\u0301"])
        return text

    def normal_forms(self):
        text = self.points(self.composed, 8)
        text = unicodedata.normalize(self.random.choice(["NFC", "NFD", "NFKD"]), text)
        letters = list(text)
        for _ in range(self.random.randint(0, 3)):
            letters.insert(self.random.randint(0, len(letters)), chr(self.random.choice(self.marks)))
        return "".join(letters)

    def marks_in_any_order(self):
        base = self.random.choice(["", "a", "e ", "\u00e9", "\u1ea5", "\uac00", "\u0915", "1", ".", "\u1100"])
        return base + self.points(self.marks, 12) + self.random.choice(["", "x", " ", base])

    def jamo_mixture(self):
        return self.points(self.jamo + [0xAC00, 0xAC1C, 0xD7A3, 0xAC01, 0x0301], 10)

    def long_run(self):
        unit = self.random.choice([
            " ", "\n", "\t", "\r\n", "a", "A", "1", "-", "=", ".", "!", "\u4e00", "\U0001F600", "\u0301",
            "\u0316\u0301", "\u00e9", "e\u0301", "\uac00", "\u1100\u1161", "ab ", " \n", "\n ", "   ...x",
            "\u3000", "'s", "<", "<|", "\x00", "\u200d", "_", "#", "/", "\u0e01", "\u0e33", "0 ",
            chr(self.random.choice(self.composed))])
        count = self.random.choice([1, 2, 3, 5, 8, 13, 31, 32, 33, 63, 64, 65, 66, 100, 127, 128, 129,
                                    257, 700, self.random.randint(1, 1500)])
        return self.random.choice(["", "x", " "]) + unit * count + self.random.choice(["", "x", " ", "\n"])

    def words(self, kind, most=25):
        text = ""
        for word in self.pick(WORDS[kind], most):
            text += word + self.random.choice(SPACES[:7] + ["", " ", " ", " "])
        return text

    def emoji(self):
        return "".join(self.random.choice(EMOJI) + self.random.choice(["", "", " ", "a", "\u200d", "\ufe0f"])
                       for _ in range(self.random.randint(1, 10)))

    def special_tokens(self):
        text = ""
        for token in self.pick(self.added_tokens, 5):
            shape = self.random.randrange(8)
            if shape == 0:
                token = token[:self.random.randint(0, len(token))]
            elif shape == 1:
                token = token[self.random.randint(0, len(token)):]
            elif shape == 2:
                token = token.upper()
            elif shape == 3:
                cut = self.random.randint(0, len(token))
                token = token[:cut] + self.random.choice(self.added_tokens) + token[cut:]
            elif shape == 4:
                token = token + chr(self.random.choice(self.marks))
            text += token + self.random.choice(["", "", " ", "\n", "a", "e", "<", "|", "\u0301", "  "])
        return text

    def spaces(self):
        return "".join(self.random.choice(SPACES) + self.random.choice(["", "", "", "a", ".", "1", "\u0301", "\u4e00"])
                       for _ in range(self.random.randint(1, 14)))

    def controls(self):
        return "".join(chr(self.random.choice([*range(0x20), *range(0x7F, 0xA1), 0x61, 0x20, 0x31]))
                       for _ in range(self.random.randint(1, 20)))

    def contractions(self):
        return "".join(self.random.choice(["I", "it", "", " ", "1", ".", "\u4e00"]) +
                       self.random.choice(CONTRACTIONS) + self.random.choice(["", "", " ", "x", "\n"])
                       for _ in range(self.random.randint(1, 8)))

    def letters(self):
        alphabet = self.random.choice(["abcdefghijklmnopqrstuvwxyz", "ABCDEFabcdef", "aab", "etaoinshr",
                                       "абвгдежзик", "αβγδε", "的一是不了人我在有他", "!?.,-=+*/"])
        return "".join(self.pick(alphabet, self.random.choice([10, 60, 70, 400])))

    def vocabulary_texts(self):
        return "".join(self.pick(self.vocabulary, 12))

    def any_code_points(self):
        points = [self.random.choice(self.categories[k]) for k in self.pick(sorted(self.categories), 20)]
        return "".join(map(chr, points))

    def mixture(self):
        return "".join(self.one()[1] for _ in range(self.random.randint(2, 5)))[:4000]

    KINDS = ["category"] * 4 + ["normal_forms"] * 2 + ["marks_in_any_order"] * 2 + [
        "jamo_mixture", "long_run", "latin", "cjk", "other", "code", "emoji", "special_tokens",
        "special_tokens", "spaces", "controls", "contractions", "letters", "vocabulary_texts",
        "vocabulary_texts", "any_code_points"]

    def one(self):
        kind = self.random.choice(self.KINDS)
        return kind, self.words(kind) if kind in WORDS else getattr(self, kind)()

    def generate(self, count):
        """Pairs of kind and text: every code point once, then `count` random ones."""
        for text in self.every_code_point():
            yield "every_code_point", text
        for i in range(count):
            yield ("mixture", self.mixture()) if i % 5 == 0 else self.one()
