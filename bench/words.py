"""Text that looks like what people, models and tools write; the same for the same seed."""

from itertools import accumulate
from random import Random

_COMMON_TEXT = """
the of and to in a is that for it as was with be by on not he this are or his from at which but
have an had they you were their one all we can her has there been if more when will would who so
no out up into do any your what than then them other some could time these two may first new now
only its over should made most after also did many before must through where much how down way
well back even because good each those people just under still make own see work while last right
old take year come since against go came used three use let about file function test error value
return class module import string list key index table query record message conversation agent
memory context window token prompt model server client request response timeout retry branch
commit merge rebase release version schema migration database cache buffer stream thread process
queue lock parse encode decode validate sort filter search render layout button style component
handler callback argument parameter default option config setting environment variable path
directory script build deploy container image volume network port host domain certificate
password account user session cookie header body payload format encoding escape unicode byte
length offset cursor page limit count total average median budget invoice quarter report meeting
note garden kitchen recipe weather train ticket holiday letter book chapter paragraph sentence
question answer reason because therefore however although perhaps probably certainly exactly
roughly usually sometimes never always again once twice quickly slowly carefully together apart
looks seems works fails passes breaks needs wants keeps holds gives takes shows says means runs
changed added removed renamed moved fixed checked written read opened closed started stopped
"""

_ELSEWHERE_TEXT = """
für über müssen größer Straße schön natürlich während läuft prüfen Änderung déjà été être où
leçon façon naïve coût créé después también señal mañana código não então você função żółw
źródło część działa příliš kůň δοκιμή σφάλμα μνήμη что это работает память ошибка проверка
данные 東京 会議 記録 会話 検索 文字 テスト エラー ありがとう 内容 数据 测试 错误 记忆 对话 搜索
메모리 오류 대화 حالة ذاكرة שלום זיכרון ✓ → … “quoted” naïve 🙂 🚀 👩‍💻 ½ €
"""

_ONSETS_TEXT = "b br c cl d dr f fl g gr h j k l m n p pl qu r s sh st t th tr v w z"
_VOWELS_TEXT = "a e i o u ai ea ee ia io oa ou"
_COMMON, _ELSEWHERE, _ONSETS, _VOWELS = (
    text.split() for text in (_COMMON_TEXT, _ELSEWHERE_TEXT, _ONSETS_TEXT, _VOWELS_TEXT)
)
_CODAS = ("", "", "b", "ck", "d", "l", "m", "n", "nd", "ng", "r", "rt", "s", "st", "t", "x")

_RARE = 6000
_SUFFIXES = ("py", "ts", "md", "json", "rs", "toml", "sql", "css")


def _rare_words() -> list[str]:
    """Names, identifiers, terms of a trade: many words, each of them seldom."""
    rng = Random(4)
    made: dict[str, None] = {}
    while len(made) < _RARE:
        syllables = rng.choices((1, 2, 3), (1, 5, 3))[0]
        word = "".join(
            rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables)
        )
        made[word.capitalize() if rng.random() < 0.1 else word] = None
    return list(made)


_WORDS = [*_COMMON, *_rare_words()]
# Zipf's law, near enough: the n-th word is n times as seldom as the first.
_WEIGHTS = list(accumulate(1 / (rank + 8) for rank in range(len(_WORDS))))


class Writer:
    """Writes texts from one source of chance."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def prose(self, words: int) -> str:
        """Sentences and paragraphs of about that many words."""
        rng = self.rng
        text = rng.choices(_WORDS, cum_weights=_WEIGHTS, k=max(words, 3))
        foreign = rng.random()
        if foreign < 0.04:
            # A text in another language.
            text = rng.choices(_ELSEWHERE, k=len(text))
        elif foreign < 0.3:
            text[rng.randrange(len(text))] = rng.choice(_ELSEWHERE)
        place = 0
        while place < len(text):
            text[place] = text[place].capitalize()
            place += rng.randrange(6, 18)
            end = min(place, len(text)) - 1
            text[end] += rng.choice((".", ".", ".", "?", ":", ".\n\n", "!"))
        return " ".join(text)

    def name(self) -> str:
        return "_".join(self.rng.choices(_WORDS, cum_weights=_WEIGHTS, k=2)).lower()

    def path(self) -> str:
        rng = self.rng
        folders = "/".join(rng.choices(_COMMON, k=rng.randrange(1, 4)))
        return f"src/{folders}/{self.name()}.{rng.choice(_SUFFIXES)}"

    def listing(self, lines: int) -> str:
        """What a tool prints: matches in files, sizes, hashes, lines of code."""
        rng = self.rng
        path = self.path()
        made = []
        for _ in range(max(lines, 1)):
            kind = rng.random()
            if kind < 0.15:
                path = self.path()
            if kind < 0.5:
                words = " ".join(rng.choices(_WORDS, cum_weights=_WEIGHTS, k=rng.randrange(2, 9)))
                made.append(f"{path}:{rng.randrange(1, 900)}:    {words}")
            elif kind < 0.8:
                made.append(f"    {self.name()} = {self.name()}({self.name()}, {rng.random():.4f})")
            else:
                made.append(f"{rng.getrandbits(64):016x}  {rng.randrange(100, 10**6):>8}  {path}")
        return "\n".join(made)
