//! DECIMAL: up to 65 digits, 30 of them after the point, without loss
//! (`reference/tidb-keys-and-rows.md` §1.5).

mod arithmetic;

use std::fmt;

/// Digits in one word of the packed form.
const WORD_DIGITS: usize = 9;
/// Words that the widest DECIMAL needs: `ceil(int / 9) + ceil(frac / 9)` with 65 digits in all.
const WORDS: usize = 9;
/// Bytes that the leading or trailing `n` digits of a part need when they fill no word.
const PARTIAL_BYTES: [usize; WORD_DIGITS] = [0, 1, 1, 2, 2, 3, 3, 4, 4];
const POW10: [u32; WORD_DIGITS + 1] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// Most digits of a DECIMAL.
pub const PRECISION_MAX: u8 = 65;
/// Most digits after the point of a DECIMAL column.
pub const SCALE_MAX: u8 = 30;

/// An exact decimal number with a fixed count of fractional digits; `12.50` and `12.5` differ in that count.
///
/// Held as words of nine digits: `int_words` for the integer part, first word least filled, then
/// `ceil(scale / 9)` for the fraction, last word filled up with zeros on the right.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    negative: bool,
    int_words: u8,
    scale: u8,
    words: [u32; WORDS],
}

impl Decimal {
    /// Zero without fractional digits.
    pub const ZERO: Self = Self { negative: false, int_words: 0, scale: 0, words: [0; WORDS] };

    /// Digits after the point.
    pub const fn scale(&self) -> u8 {
        self.scale
    }

    /// Whether a minus sign is printed.
    pub const fn is_negative(&self) -> bool {
        self.negative
    }

    /// Whether all digits are zero.
    pub fn is_zero(&self) -> bool {
        self.words == [0; WORDS]
    }

    fn int_part(&self) -> &[u32] {
        self.words.get(..usize::from(self.int_words)).unwrap_or_default()
    }

    fn frac_part(&self) -> &[u32] {
        let start = usize::from(self.int_words);
        let len = usize::from(self.scale).div_ceil(WORD_DIGITS);
        self.words.get(start..start + len).unwrap_or_default()
    }

    /// Reads the packed form with its precision and scale in front. Returns the number and the bytes it
    /// took; `None` when they are no decimal.
    pub fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (&[precision, scale], packed) = bytes.split_first_chunk::<2>()?;
        let len = packed_len(precision, scale)?;
        let number = Self::unpack(packed.get(..len)?, precision, scale)?;
        Some((number, 2 + len))
    }

    /// Bytes that [`Self::decode`] would take, without decoding.
    pub fn encoded_len(bytes: &[u8]) -> Option<usize> {
        let &[precision, scale] = bytes.first_chunk::<2>()?;
        Some(2 + packed_len(precision, scale)?)
    }

    fn unpack(packed: &[u8], precision: u8, scale: u8) -> Option<Self> {
        let int_digits = usize::from(precision - scale);
        let first = *packed.first()?;
        let mask = if first & 0x80 == 0 { u32::MAX } else { 0 };
        let mut number = Self { negative: mask != 0, scale, ..Self::ZERO };
        let mut reader = WordReader { packed, mask, flip: 0x80 };
        let mut words = number.words.iter_mut();
        let mut put = |word: u32, int_words: &mut u8, leading: bool| -> Option<()> {
            if leading && *int_words == 0 && word == 0 {
                return Some(());
            }
            *words.next()? = word;
            *int_words += u8::from(leading);
            Some(())
        };
        let leading = int_digits % WORD_DIGITS;
        if leading > 0 {
            put(reader.read(leading)?, &mut number.int_words, true)?;
        }
        for _ in 0..int_digits / WORD_DIGITS {
            put(reader.read(WORD_DIGITS)?, &mut number.int_words, true)?;
        }
        for _ in 0..usize::from(scale) / WORD_DIGITS {
            put(reader.read(WORD_DIGITS)?, &mut number.int_words, false)?;
        }
        let trailing = usize::from(scale) % WORD_DIGITS;
        if trailing > 0 {
            let word = reader.read(trailing)? * POW10.get(WORD_DIGITS - trailing)?;
            put(word, &mut number.int_words, false)?;
        }
        Some(number)
    }

    /// Appends the packed form of `DECIMAL(precision, scale)` with both numbers in front. Digits after the
    /// point beyond `scale` are rounded; `None` when the integer part does not fit.
    pub fn encode(&self, precision: u8, scale: u8, out: &mut Vec<u8>) -> Option<()> {
        let len = packed_len(precision, scale)?;
        let number = self.with_scale(scale)?;
        let int_digits = usize::from(precision - scale);
        let digits = number.digits();
        let start = digits.int.len().saturating_sub(int_digits);
        if digits.int.iter().take(start).any(|digit| *digit != 0) {
            return None;
        }
        out.extend_from_slice(&[precision, scale]);
        let begin = out.len();
        let pad = int_digits.saturating_sub(digits.int.len());
        let padded: Vec<u8> =
            std::iter::repeat_n(0, pad).chain(digits.int.iter().skip(start).copied()).collect();
        let (head, full) = padded.split_at_checked(int_digits % WORD_DIGITS)?;
        pack_digits(head, out);
        full.chunks(WORD_DIGITS).for_each(|word| pack_digits(word, out));
        digits.frac.chunks(WORD_DIGITS).for_each(|word| pack_digits(word, out));
        let packed = out.get_mut(begin..)?;
        debug_assert_eq!(packed.len(), len);
        if number.negative {
            packed.iter_mut().for_each(|byte| *byte = !*byte);
        }
        *packed.first_mut()? ^= 0x80;
        Some(())
    }

    /// Appends the packed form with the number's own precision and scale.
    pub fn encode_natural(&self, out: &mut Vec<u8>) -> Option<()> {
        let int_digits = self.digits().significant_int().len();
        let precision = (u8::try_from(int_digits).ok()? + self.scale).max(1);
        self.encode(precision, self.scale, out)
    }

    /// The number with `scale` fractional digits: filled up with zeros, or rounded half away from zero.
    /// `None` when it would not fit any DECIMAL.
    pub fn with_scale(&self, scale: u8) -> Option<Self> {
        if scale == self.scale {
            return Some(*self);
        }
        let mut digits = self.digits();
        let keep = usize::from(scale);
        let round_up = digits.frac.get(keep).is_some_and(|digit| *digit >= 5);
        digits.frac.resize(keep, 0);
        if round_up {
            digits.increment();
        }
        Self::from_digits(self.negative, &digits.int, &digits.frac)
    }

    fn digits(&self) -> Digits {
        let spread =
            |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word_digits(*word)).collect() };
        let mut frac = spread(self.frac_part());
        frac.truncate(usize::from(self.scale));
        Digits { int: spread(self.int_part()), frac }
    }

    /// Builds a number from digits (0 to 9) before and after the point. `None` when there are too many.
    pub(crate) fn from_digits(negative: bool, int: &[u8], frac: &[u8]) -> Option<Self> {
        let int = int.iter().position(|digit| *digit != 0).and_then(|at| int.get(at..)).unwrap_or_default();
        let scale = u8::try_from(frac.len()).ok()?;
        let int_words = u8::try_from(int.len().div_ceil(WORD_DIGITS)).ok()?;
        let mut number = Self { negative, int_words, scale, words: [0; WORDS] };
        let (head, full) = int.split_at_checked(int.len() % WORD_DIGITS)?;
        let heads = (!head.is_empty()).then_some(head).into_iter();
        let values = heads
            .chain(full.chunks(WORD_DIGITS))
            .map(|digits| (digits, 0))
            .chain(frac.chunks(WORD_DIGITS).map(|digits| (digits, WORD_DIGITS - digits.len())));
        let mut words = number.words.iter_mut();
        for (digits, shift) in values {
            *words.next()? = word_of(digits) * POW10.get(shift)?;
        }
        number.negative &= !number.is_zero();
        Some(number)
    }

    /// Reads `[-+]digits[.digits][e[-+]digits]`. The scale is what the text shows, at most 30 digits (more
    /// are rounded). `None` when it is no number or has too many digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i32 = exponent.parse().ok()?;
        let (int, frac) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digit = |c: char| c.to_digit(10).and_then(|digit| u8::try_from(digit).ok());
        let digits: Vec<u8> = int.chars().chain(frac.chars()).map(digit).collect::<Option<_>>()?;
        if digits.is_empty() || exponent.unsigned_abs() > 200 {
            return None;
        }
        let point = i32::try_from(int.len()).ok()? + exponent;
        Self::place_point(negative, digits, point)
    }

    /// The number whose digits are `digits` with the decimal point after the first `point` of them.
    fn place_point(negative: bool, mut digits: Vec<u8>, point: i32) -> Option<Self> {
        let lead = usize::try_from(-point).unwrap_or_default();
        digits.splice(0..0, std::iter::repeat_n(0, lead));
        let point = usize::try_from(point).unwrap_or_default();
        if point > digits.len() {
            digits.resize(point, 0);
        }
        let (int, frac) = digits.split_at_checked(point)?;
        let mut digits = Digits { int: int.to_vec(), frac: frac.to_vec() };
        let keep = usize::from(SCALE_MAX);
        let round_up = digits.frac.get(keep).is_some_and(|digit| *digit >= 5);
        digits.frac.truncate(keep);
        if round_up {
            digits.increment();
        }
        Self::from_digits(negative, &digits.int, &digits.frac)
    }

    /// Appends the text form: all fractional digits, at least one before the point.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        if self.negative {
            out.push(b'-');
        }
        match self.int_part().split_first() {
            Some((first, rest)) => {
                out.extend_from_slice(itoa::Buffer::new().format(*first).as_bytes());
                rest.iter().for_each(|word| out.extend_from_slice(&word_text(*word)));
            }
            None => out.push(b'0'),
        }
        if self.scale > 0 {
            out.push(b'.');
            let end = out.len() + usize::from(self.scale);
            self.frac_part().iter().for_each(|word| out.extend_from_slice(&word_text(*word)));
            out.truncate(end);
        }
    }
}

/// Digits before and after the point, most significant first.
struct Digits {
    int: Vec<u8>,
    frac: Vec<u8>,
}

impl Digits {
    /// Adds one to the last digit.
    fn increment(&mut self) {
        for digit in self.frac.iter_mut().rev().chain(self.int.iter_mut().rev()) {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.int.insert(0, 1);
    }

    /// The integer digits without leading zeros.
    fn significant_int(&self) -> &[u8] {
        let first = self.int.iter().position(|digit| *digit != 0);
        first.and_then(|at| self.int.get(at..)).unwrap_or_default()
    }
}

/// Reads packed words, undoing the inversion of negative numbers and the flipped top bit.
struct WordReader<'a> {
    packed: &'a [u8],
    mask: u32,
    flip: u8,
}

impl WordReader<'_> {
    /// The next word, of `digits` digits; `None` when it holds more digits than that.
    fn read(&mut self, digits: usize) -> Option<u32> {
        let len = PARTIAL_BYTES.get(digits).copied().unwrap_or(4);
        let (bytes, rest) = self.packed.split_at_checked(len)?;
        self.packed = rest;
        let mut word = 0;
        for byte in bytes {
            word = word << 8 | u32::from(byte ^ self.flip);
            self.flip = 0;
        }
        let used = u32::MAX >> (32 - 8 * len);
        let word = word ^ (self.mask & used);
        (word < *POW10.get(digits)?).then_some(word)
    }
}

/// Bytes of the packed form; `None` for a precision and scale that no DECIMAL has.
fn packed_len(precision: u8, scale: u8) -> Option<usize> {
    let int = usize::from(precision.checked_sub(scale)?);
    let frac = usize::from(scale);
    if precision == 0 || int.div_ceil(WORD_DIGITS) + frac.div_ceil(WORD_DIGITS) > WORDS {
        return None;
    }
    let part = |digits: usize| Some(digits / WORD_DIGITS * 4 + PARTIAL_BYTES.get(digits % WORD_DIGITS)?);
    Some(part(int)? + part(frac)?)
}

fn word_of(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |word, digit| word * 10 + u32::from(*digit))
}

/// Appends one word of up to nine digits in as few bytes as its digit count needs.
fn pack_digits(digits: &[u8], out: &mut Vec<u8>) {
    let len = PARTIAL_BYTES.get(digits.len()).copied().unwrap_or(4);
    let bytes = word_of(digits).to_be_bytes();
    out.extend(bytes.iter().skip(bytes.len() - len));
}

/// The nine digits of a word as numbers.
fn word_digits(word: u32) -> [u8; WORD_DIGITS] {
    word_text(word).map(|digit| digit - b'0')
}

/// The nine digits of a word as text, leading zeros included.
#[inline]
fn word_text(word: u32) -> [u8; WORD_DIGITS] {
    let (first, rest) = (word / 100_000_000, word % 100_000_000);
    let (high, low) = (rest / 10_000, rest % 10_000);
    let [a, b] = two_digits(high / 100);
    let [c, d] = two_digits(high % 100);
    let [e, f] = two_digits(low / 100);
    let [g, h] = two_digits(low % 100);
    let [_, first] = two_digits(first);
    [first, a, b, c, d, e, f, g, h]
}

/// The two digits of a number below 100.
#[inline]
fn two_digits(number: u32) -> [u8; 2] {
    usize::try_from(number).ok().and_then(|at| PAIRS.get(at)).copied().unwrap_or([b'0'; 2])
}

/// `00` to `99`.
#[expect(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "checked by the compiler")]
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(WORDS * WORD_DIGITS + 3);
        self.write_text(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Decimal {
    /// Digits before the point, without leading zeros.
    pub fn int_digits(&self) -> usize {
        self.digits().significant_int().len()
    }

    /// The largest (or, negative, the least) number of `DECIMAL(precision, scale)`; `None` for a precision
    /// and scale that no DECIMAL has.
    pub fn largest(negative: bool, precision: u8, scale: u8) -> Option<Self> {
        packed_len(precision, scale)?;
        let nines = [9; PRECISION_MAX as usize];
        let int = nines.get(..usize::from(precision - scale))?;
        Self::from_digits(negative, int, nines.get(..usize::from(scale))?)
    }

    /// Rounded half away from zero, and clipped to the range.
    pub fn to_i64(&self) -> i64 {
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        self.with_scale(0).and_then(|whole| whole.to_string().parse().ok()).unwrap_or(limit)
    }

    /// Rounded half away from zero, and clipped to the range: a negative number is 0.
    pub fn to_u64(&self) -> u64 {
        let limit = if self.negative { 0 } else { u64::MAX };
        self.with_scale(0).and_then(|whole| whole.to_string().parse().ok()).unwrap_or(limit)
    }

    /// The nearest double.
    pub fn to_f64(&self) -> f64 {
        self.to_string().parse().expect("a decimal's text is a number")
    }

    /// The number that the double's shortest text shows, with at most 30 digits after the point; the largest
    /// number when it is beyond the range.
    pub fn from_f64(value: f64) -> Self {
        let beyond = || Self::largest(value < 0.0, PRECISION_MAX, 0).unwrap_or(Self::ZERO);
        Self::parse(&value.to_string()).unwrap_or_else(beyond)
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Self { negative: value < 0, ..Self::from(value.unsigned_abs()) }
    }
}

impl From<u64> for Decimal {
    fn from(value: u64) -> Self {
        let text = value.to_string();
        let digits: Vec<u8> = text.bytes().map(|digit| digit - b'0').collect();
        Self::from_digits(false, &digits, &[]).expect("twenty digits fit a decimal")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::hex;

    #[test]
    fn packed_numbers_of_the_reference_decode_to_their_text_and_back() {
        let nines = "9".repeat(65);
        let cases = [
            ("0", 10, 0, "0a00 8000000000"),
            ("1", 10, 0, "0a00 8000000001"),
            ("-1", 10, 0, "0a00 7ffffffffe"),
            ("8000", 10, 0, "0a00 8000001f40"),
            ("12345", 5, 0, "0500 803039"),
            ("12345.000", 10, 3, "0a03 800030390000"),
            ("12.50", 10, 2, "0a02 8000000c32"),
            ("129012.12", 10, 2, "0a02 8001f7f40c"),
            ("179394.2330", 10, 4, "0a04 82bcc2091a"),
            ("1234567890.1234", 14, 4, "0e04 810dfb38d204d2"),
            ("-1234567890.1234", 14, 4, "0e04 7ef204c72dfb2d"),
            ("0.00012345000098765000", 22, 20, "1614 800001e23a000f120200"),
            ("-0.001", 5, 3, "0503 7ffffe"),
            ("0.5", 1, 1, "0101 85"),
            ("0.00", 5, 2, "0502 800000"),
            (&nines, 65, 0, "4100 e33b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff"),
        ];
        for (text, precision, scale, packed) in cases {
            let packed = hex(packed);
            let (number, len) = Decimal::decode(&packed).unwrap();
            assert_eq!((number.to_string().as_str(), len), (text, packed.len()));
            let mut out = Vec::new();
            Decimal::parse(text).unwrap().encode(precision, scale, &mut out).unwrap();
            assert_eq!(out, packed, "{text}");
        }
    }

    #[test]
    fn narrowing_the_scale_rounds_half_away_from_zero() {
        let cases = [
            ("1.005", 2, "1.01"),
            ("-1.005", 2, "-1.01"),
            ("9.99", 1, "10.0"),
            ("0.4", 0, "0"),
            ("-0.4", 0, "0"),
        ];
        for (text, scale, rounded) in cases {
            assert_eq!(Decimal::parse(text).unwrap().with_scale(scale).unwrap().to_string(), rounded);
        }
        let wide = "999999999.999999999".parse_decimal();
        assert_eq!(wide.with_scale(0).unwrap().to_string(), "1000000000");
        assert_eq!("3.14".parse_decimal().natural(), hex("0302830e"));
    }

    trait Parse {
        fn parse_decimal(&self) -> Decimal;
    }

    impl Parse for str {
        fn parse_decimal(&self) -> Decimal {
            Decimal::parse(self).unwrap()
        }
    }

    impl Decimal {
        fn natural(&self) -> Vec<u8> {
            let mut out = Vec::new();
            self.encode_natural(&mut out).unwrap();
            out
        }
    }

    #[test]
    fn exponents_move_the_point() {
        let cases = [("1e3", "1000"), ("1.25e1", "12.5"), ("12e-3", "0.012"), ("-5E-1", "-0.5")];
        for (text, plain) in cases {
            assert_eq!(text.parse_decimal().to_string(), plain);
        }
        for bad in ["", "-", ".", "1.2.3", "1e", "abc", "1e999", &"9".repeat(82)] {
            assert_eq!(Decimal::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn impossible_packed_forms_are_refused() {
        for bad in ["", "0a", "0a00 80", "0000", "0205 8000", "ff00 80", "0500 8f4240", "0100 8b"] {
            assert_eq!(Decimal::decode(&hex(bad)), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_decimal_survives_packing(
            negative: bool,
            int in "[1-9][0-9]{0,34}",
            frac in "[0-9]{0,30}",
        ) {
            let sign = if negative { "-" } else { "" };
            let point = if frac.is_empty() { "" } else { "." };
            let text = format!("{sign}{int}{point}{frac}");
            let mut packed = Vec::new();
            let scale = u8::try_from(frac.len()).unwrap();
            Decimal::parse(&text).unwrap().encode(65, scale, &mut packed).unwrap();
            let (number, len) = Decimal::decode(&packed).unwrap();
            prop_assert_eq!((number.to_string(), len), (text, packed.len()));
            prop_assert_eq!(Decimal::encoded_len(&packed), Some(len));
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..48)) {
            if let Some((number, _)) = Decimal::decode(&bytes) {
                prop_assert!(Decimal::parse(&number.to_string()).is_some());
            }
        }
    }
}
