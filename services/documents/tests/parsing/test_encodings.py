"""Texts that do not say in which encoding they are."""

from __future__ import annotations

import codecs
import random

import pytest

from bos_documents.parsing.formats.plain import encoding_notes
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import LEGACY, decode

ENGLISH = "The buyer pays within thirty days of delivery."
GERMAN = "Die Lieferung erfolgt binnen fünf Werktagen; Größe und Stückzahl prüft der Käufer."
FRENCH = "Le délai de livraison est de cinq jours ouvrés. Été, forêt, garçon, où."
POLISH = "Dostawa musi nastąpić w ciągu pięciu dni roboczych. Opóźnienie kosztuje dwa złote."
RUSSIAN = "Поставка должна быть произведена в течение пяти рабочих дней. За просрочку — штраф."
GREEK = "Η παράδοση πρέπει να γίνει εντός πέντε εργάσιμων ημερών."
JAPANESE = "納品は五営業日以内に行わなければならない。カタカナもあります。"
CHINESE = "交货必须在五个工作日内完成。延迟将收取罚款。"
TAIWANESE = "交貨必須在五個工作日內完成。延遲將收取罰款。"
KOREAN = "납품은 영업일 기준 오일 이내에 이루어져야 합니다. 지연 시 위약금이 부과됩니다."

TEXTS = [
    *((text, name) for text in (GERMAN, RUSSIAN, JAPANESE, ENGLISH) for name in ("utf-8",)),
    *((text, name) for text in (ENGLISH, RUSSIAN) for name in ("utf-16-le", "utf-16-be")),
    (JAPANESE, "utf-16-le"),
    (GERMAN, "cp1252"),
    (FRENCH, "cp1252"),
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


@pytest.mark.parametrize("lines", [1, 3000], ids=["line", "long"])
@pytest.mark.parametrize(("text", "encoding"), TEXTS)
def test_text_is_read_whatever_its_encoding(text: str, encoding: str, lines: int) -> None:
    whole = f"{text}\n" * lines
    assert decode(whole.encode(encoding))[0] == whole


def test_sample_that_ends_within_a_character_does_not_change_the_guess() -> None:
    for ascii_before in range(4):
        whole = "x" * ascii_before + "\n" + f"{JAPANESE}\n" * 2000
        assert decode(whole.encode("shift_jis"))[0] == whole


def test_guess_is_told_to_the_owner_and_certainty_is_not() -> None:
    _, guessed = decode(RUSSIAN.encode("cp1251"))
    assert "was read as Windows-1251" in " ".join(encoding_notes(guessed))
    for certain in (RUSSIAN.encode(), RUSSIAN.encode("utf-16")):
        assert encoding_notes(decode(certain)[1]) == ()


def test_every_encoding_is_one_that_the_runtime_knows() -> None:
    assert [codecs.lookup(name).name for name in LEGACY]


@pytest.mark.parametrize("seed", range(20))
def test_bytes_that_are_no_text_are_refused(seed: int) -> None:
    noise = random.Random(seed).randbytes(5000)
    for data in (noise, b"\x7fELF" + bytes(1000), bytes(64) + noise):
        with pytest.raises(DocumentRejected):
            decode(data)


@pytest.mark.parametrize("text", ["Café crème", "“Grüße” – 50 €", "Größe: 12"])
def test_a_few_words_of_western_europe_are_read_as_windows_1252(text: str) -> None:
    assert decode(text.encode("cp1252")) == (text, "cp1252")
