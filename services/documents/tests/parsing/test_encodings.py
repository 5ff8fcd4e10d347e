"""Texts that do not say in which encoding they are."""

import codecs
import random

import pytest

from bos_documents.parsing.formats.plain import encoding_notes
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import LEGACY, decode

ENGLISH = "The buyer pays within thirty days of delivery."
GERMAN = "Die Lieferung erfolgt binnen fünf Werktagen; Größe und Stückzahl prüft der Käufer."
POLISH = "Dostawa musi nastąpić w ciągu pięciu dni roboczych. Opóźnienie kosztuje dwa złote."
RUSSIAN = "Поставка должна быть произведена в течение пяти рабочих дней. За просрочку — штраф."
GREEK = "Η παράδοση πρέπει να γίνει εντός πέντε εργάσιμων ημερών."
JAPANESE = "納品は五営業日以内に行わなければならない。カタカナもあります。"
CHINESE = "交货必须在五个工作日内完成。延迟将收取罚款。"
TAIWANESE = "交貨必須在五個工作日內完成。延遲將收取罰款。"
KOREAN = "납품은 영업일 기준 오일 이내에 이루어져야 합니다. 지연 시 위약금이 부과됩니다."

TEXTS = [
    (JAPANESE, "utf-8"),
    (ENGLISH, "utf-16-le"),
    (RUSSIAN, "utf-16-be"),
    (GERMAN, "cp1252"),
    (POLISH, "cp1250"),
    (RUSSIAN, "cp1251"),
    (RUSSIAN.replace("—", "-"), "koi8-r"),
    (GREEK, "cp1253"),
    (JAPANESE, "shift_jis"),
    (JAPANESE, "euc_jp"),
    (CHINESE, "gb18030"),
    (TAIWANESE, "big5"),
    (KOREAN, "euc_kr"),
]


@pytest.mark.parametrize(("text", "encoding"), TEXTS)
def test_encoding_is_detected(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding))[0] == text


def test_sample_cut_within_a_character_keeps_the_guess() -> None:
    for ascii_before in range(4):
        whole = "x" * ascii_before + "\n" + f"{JAPANESE}\n" * 2000
        assert decode(whole.encode("shift_jis"))[0] == whole


def test_only_a_guessed_encoding_is_noted() -> None:
    _, guessed = decode(RUSSIAN.encode("cp1251"))
    assert "was read as Windows-1251" in " ".join(encoding_notes(guessed))
    for certain in (RUSSIAN.encode(), RUSSIAN.encode("utf-16")):
        assert encoding_notes(decode(certain)[1]) == ()


def test_every_encoding_is_one_that_the_runtime_knows() -> None:
    assert [codecs.lookup(name).name for name in LEGACY]


def test_binary_data_are_refused() -> None:
    noise = random.Random(1).randbytes(5000)
    for data in (noise, b"\x7fELF" + bytes(1000), bytes(64) + noise):
        with pytest.raises(DocumentRejected):
            decode(data)


@pytest.mark.parametrize("text", ["Café crème", "“Grüße” – 50 €"])
def test_a_few_words_of_western_europe_are_read_as_windows_1252(text: str) -> None:
    assert decode(text.encode("cp1252")) == (text, "cp1252")
