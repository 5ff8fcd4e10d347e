"""Texts in the encodings that files and mails are in, read as they were written."""

import random

import pytest

from bos_encodings import NotText, read_text

GERMAN = "Die Größe der Lieferung beträgt fünf Stück. Straße, Müller, Übergabe am Äquator."
FRENCH = "L'élève a été reçu à l'école; la pénalité s'élève à 5 %. Où ça? Noël, français."
SPANISH = "La sanción asciende al cinco por ciento. Año, niño, ¿dónde está el señor?"
ICELANDIC = "Dagsektin er fimm prósent. Þetta er góð æfing, það má sjá í öllum bréfum."
POLISH = "Kara umowna wynosi pięć procent. Zażółć gęślą jaźń, wartość łączna, źródło."
CZECH = "Smluvní pokuta činí pět procent. Příliš žluťoučký kůň úpěl ďábelské ódy."
HUNGARIAN = "A kötbér mértéke öt százalék. Árvíztűrő tükörfúrógép, határidő, összeg."
LITHUANIAN = "Bauda sudaro penkis procentus. Ąžuolas, šešėlis, ežys, įmonė, žūtis, ūkis."
TURKISH = "Cezai şart sözleşme bedelinin yüzde beşidir. İstanbul, ığdır, değer, müşteri."
RUSSIAN = "Договор поставки 5 от 12 марта. Штраф 5%."
UKRAINIAN = "Договір постачання, штраф п'ять відсотків. Її єдина підстава."
BULGARIAN = "Неустойката е пет процента от общата стойност на договора."
GREEK = "Η ποινική ρήτρα είναι πέντε τοις εκατό του συνόλου της σύμβασης."
HEBREW = "קנס ההפרה הוא חמישה אחוזים מסכום החוזה הכולל"
ARABIC = "الغرامة خمسة بالمئة من إجمالي قيمة العقد وتنتهي في مارس"
THAI = "ค่าปรับร้อยละห้าของมูลค่าสัญญาทั้งหมด"
JAPANESE = "契約の違約金は総額の五パーセントです。株式会社アクメ、二〇二六年三月。"
CHINESE = "合同编号：HT-2026-001。违约金为合同总额的百分之五，自逾期之日起计算。"
TAIWANESE = "本合約之違約金為總價百分之五，自逾期日起算。"
KOREAN = "계약 위약금은 총액의 오 퍼센트입니다. 주식회사 아크메."

WITHOUT_MARK = [
    *(
        (GERMAN, each)
        for each in ("utf-8", "cp1252", "cp850", "mac_roman", "utf-16-le", "utf-32-be")
    ),
    *((FRENCH, each) for each in ("cp1252", "cp850")),
    *((SPANISH, "cp1252"), (ICELANDIC, "cp1252")),
    *((POLISH, each) for each in ("cp1250", "iso8859_2", "cp852")),
    *((CZECH, each) for each in ("cp1250", "iso8859_2", "cp852")),
    *((HUNGARIAN, "cp1250"), (LITHUANIAN, "cp1257"), (TURKISH, "cp1254")),
    *((RUSSIAN.replace("5 от", "№5 от"), each) for each in ("cp1251", "cp866", "iso8859_5")),
    *((RUSSIAN, each) for each in ("koi8_r", "utf-16-be")),
    *((UKRAINIAN, "cp1251"), (UKRAINIAN, "koi8_u"), (BULGARIAN, "cp1251")),
    *((GREEK, "cp1253"), (HEBREW, "cp1255"), (ARABIC, "cp1256"), (THAI, "cp874")),
    *((JAPANESE, each) for each in ("cp932", "euc_jp", "iso2022_jp", "utf-16-be")),
    *((CHINESE, each) for each in ("gb18030", "utf-16-le")),
    *((TAIWANESE, "big5"), (KOREAN, "cp949"), (KOREAN, "iso2022_kr")),
    # What JIS X 0208 lacks, and letters of half a width.
    ("髙橋様の契約は２０２６年に終了します。①丸付き数字とⅢ。", "cp932"),
    ("ｱｲｳ株式会社 ｶﾅ", "cp932"),
    # Few words, as of a small table.
    *(("処理区分,件数\r\n1,2\r\n", each) for each in ("cp932", "euc_jp")),
    ("日期,客户,金额\n2026-03-31,王小明,100.5\n", "gb18030"),
    ("城市,數量\n臺北,5\n", "big5"),
    ("도시,수량\n서울,5\n", "cp949"),
    *(("Город;Количество\nМосква;5\n", each) for each in ("cp1251", "koi8_r", "cp866")),
    ("ПРОДАЖИ;СУММА\nМОСКВА;5\n", "cp1251"),
    ("שלום עולם", "cp1255"),
    ("name;amount\nMüller;1,5\n", "cp1252"),
    ("Artikel;Preis\nPumpe;5 €\n", "cp1252"),
    ("20°C ±2, “quoted” – naïve", "cp1252"),
    ("dust;40 µg/m³\nNO2;18 µg/m³\n", "cp1252"),
    ("Łódź", "cp1250"),
    # The only line beyond ASCII stands behind the sample of 64 KiB.
    ("-- plain ascii\n" * 5000 + "comment '资产公司名称'\n" * 3, "gb18030"),
    ("x\n" + f"{JAPANESE}\n" * 2000, "cp932"),
]


def test_text_is_read_in_the_encoding_it_was_written_in() -> None:
    found = {
        (encoding, text[:30]): read_text(text.encode(encoding)).text
        for text, encoding in WITHOUT_MARK
    }
    expected = {(encoding, text[:30]): text for text, encoding in WITHOUT_MARK}
    assert [key for key in expected if found[key] != expected[key]] == []


DECLARED = [
    ("utf-8", GERMAN.encode(), GERMAN),
    ('"utf-8; format=flowed"', GERMAN.encode(), GERMAN),
    ("windows-936", CHINESE.encode("gbk"), CHINESE),
    ("gb2312", "镕".encode("gbk"), "镕"),
    ("iso-8859-1", "5 € – “x”".encode("cp1252"), "5 € – “x”"),
    ("ISO_8859-8-I", HEBREW.encode("cp1255"), HEBREW),
    ("iso-2022-jp", "橋の契約".encode("iso2022_jp"), "橋の契約"),
    ("ks_c_5601-1987", "똠방각하".encode("cp949"), "똠방각하"),
    ("shift_jis", "①髙".encode("cp932"), "①髙"),
    # Unknown or wrong: what fits decides.
    ("unknown-8bit", GERMAN.encode(), GERMAN),
    ("x-unknown", RUSSIAN.encode("cp1251"), RUSSIAN),
    ("ANSI_X3.4-1968", b"plain", "plain"),
    ("us-ascii", GERMAN.encode("cp1252"), GERMAN),
    ("utf-8", GERMAN.encode("cp1252"), GERMAN),
    ("rot13", b"abc", "abc"),
    ("zlib", b"abc", "abc"),
    ("utf-16", b"<p>plain</p>", "<p>plain</p>"),
    ("utf-16", "Größe".encode("utf-16-le"), "Größe"),
    ("punycode", b"Grsse-4ya", "Grsse-4ya"),
    ("raw_unicode_escape", rb"\u0041", r"\u0041"),
    # The byte order mark is stronger.
    ("windows-1252", "\ufeffGröße".encode(), "Größe"),
    ("utf-8", "Größe".encode("utf-16"), "Größe"),
]


def test_declared_charset_is_used_if_it_is_known_and_fits() -> None:
    wrong = [
        (label, found)
        for label, data, text in DECLARED
        if (found := read_text(data, declared=label).text) != text
    ]
    assert wrong == []


@pytest.mark.parametrize("text", [CHINESE * 3, GERMAN, ARABIC])
def test_one_invalid_byte_leaves_a_text_of_utf_8(text: str) -> None:
    half = len(text) // 2
    data = text[:half].encode() + b"\xff" + text[half:].encode()
    found = read_text(data)
    assert (found.text, found.encoding) == (f"{text[:half]}\ufffd{text[half:]}", "utf-8")
    assert found.note.startswith("1 place is no valid UTF-8")


def test_only_a_reading_in_doubt_has_a_note() -> None:
    assert "was read as windows-1251" in read_text(RUSSIAN.encode("cp1251")).note
    assert "was read as Shift JIS" in read_text(JAPANESE.encode("cp932")).note
    certain = (
        b"",
        b"ascii",
        RUSSIAN.encode(),
        RUSSIAN.encode("utf-16"),
        JAPANESE.encode("iso2022_jp"),
    )
    assert [each for each in certain if read_text(each).note] == []
    assert read_text(RUSSIAN.encode("koi8_r"), declared="koi8-r").note == ""


@pytest.mark.security
def test_binary_data_are_refused() -> None:
    noise = random.Random(1).randbytes(5000)
    with_zero = [f"{text}\0{text}" for text in (GERMAN, "plain words, and more of them. ")]
    texts = [text.encode(each) for text in with_zero for each in ("utf-8", "cp1252")]
    for data in (noise, b"\x7fELF" + bytes(1000), bytes(64) + noise, b"a,b\n1,\0\n", *texts):
        with pytest.raises(NotText):
            read_text(data)
