//! Arithmetic on decimals, digit by digit: for generated columns, where clarity beats speed.

use std::cmp::Ordering;

use super::{Decimal, Digits, PRECISION_MAX, SCALE_MAX};

/// Digits that division adds to the scale of the dividend.
const DIVISION_DIGITS: u8 = 4;

/// A number as digits, most significant first, of which the last `scale` stand after the point.
struct Digit {
    digits: Vec<u8>,
    scale: usize,
}

impl Decimal {
    /// The number without its sign as digits, with at least `scale` of them after the point.
    fn magnitude(&self, scale: usize) -> Digit {
        let Digits { int, frac } = self.digits();
        let scale = scale.max(frac.len());
        let mut digits = int;
        digits.extend(frac);
        digits.resize(digits.len() + scale - usize::from(self.scale()), 0);
        Digit { digits, scale }
    }

    /// The number of these digits, rounded to what a decimal can hold; `None` when its integer part is too
    /// long.
    fn from_magnitude(negative: bool, magnitude: Digit) -> Option<Self> {
        let Digit { mut digits, scale } = magnitude;
        let lead = (scale + 1).saturating_sub(digits.len());
        digits.splice(0..0, std::iter::repeat_n(0, lead));
        let (int, frac) = digits.split_at_checked(digits.len() - scale)?;
        let mut digits = Digits { int: int.to_vec(), frac: frac.to_vec() };
        let int_len = digits.significant_int().len();
        let room = usize::from(PRECISION_MAX).checked_sub(int_len)?.min(usize::from(SCALE_MAX));
        let round_up = digits.frac.get(room).is_some_and(|digit| *digit >= 5);
        digits.frac.truncate(room);
        if round_up {
            digits.increment();
        }
        Self::from_digits(negative, &digits.int, &digits.frac)
    }

    /// The number with its sign turned.
    #[must_use]
    pub fn negated(&self) -> Self {
        Self { negative: !self.negative && !self.is_zero(), ..*self }
    }

    /// The sum; `None` when it is too large.
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        let scale = usize::from(self.scale().max(other.scale()));
        let (a, b) = (self.magnitude(scale), other.magnitude(scale));
        if self.negative == other.negative {
            return Self::from_magnitude(self.negative, Digit { digits: add(&a.digits, &b.digits), scale });
        }
        let (negative, digits) = match compare(&a.digits, &b.digits) {
            Ordering::Less => (other.negative, subtract(&b.digits, &a.digits)),
            _ => (self.negative, subtract(&a.digits, &b.digits)),
        };
        Self::from_magnitude(negative, Digit { digits, scale })
    }

    /// The difference; `None` when it is too large.
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        self.checked_add(&other.negated())
    }

    /// The product; `None` when it is too large.
    pub fn checked_mul(&self, other: &Self) -> Option<Self> {
        let (a, b) = (self.magnitude(0), other.magnitude(0));
        let digits = multiply(&a.digits, &b.digits);
        Self::from_magnitude(self.negative != other.negative, Digit { digits, scale: a.scale + b.scale })
    }

    /// The quotient with four more fractional digits than the dividend; `None` when the divisor is zero or
    /// the result too large.
    pub fn checked_div(&self, other: &Self) -> Option<Self> {
        // TiDB computes in words of nine digits, so a few more digits than announced take part in what
        // follows, until a column cuts them.
        let wanted = usize::from(self.scale() + DIVISION_DIGITS).div_ceil(9) * 9;
        let (quotient, _) = self.divide(other, wanted)?;
        Self::from_magnitude(self.negative != other.negative, Digit { digits: quotient, scale: wanted })
    }

    /// The remainder, with the dividend's sign; `None` when the divisor is zero.
    pub fn checked_rem(&self, other: &Self) -> Option<Self> {
        let (_, remainder) = self.divide(other, 0)?;
        Self::from_magnitude(self.negative, remainder)
    }

    /// Quotient digits (with `scale` of them after the point) and remainder of the magnitudes.
    fn divide(&self, other: &Self, scale: usize) -> Option<(Vec<u8>, Digit)> {
        if other.is_zero() {
            return None;
        }
        let common = usize::from(self.scale().max(other.scale()));
        let (mut a, b) = (self.magnitude(common), other.magnitude(common));
        a.digits.resize(a.digits.len() + scale, 0);
        let divisor = trimmed(&b.digits);
        let mut quotient = Vec::with_capacity(a.digits.len());
        let mut rest: Vec<u8> = Vec::new();
        for digit in &a.digits {
            rest.push(*digit);
            let mut count = 0;
            while compare(&rest, divisor) != Ordering::Less {
                rest = subtract(&rest, divisor);
                count += 1;
            }
            quotient.push(count);
            rest = trimmed(&rest).to_vec();
        }
        Some((quotient, Digit { digits: rest, scale: common }))
    }

    /// How two numbers compare, whatever their scales.
    pub fn compare(&self, other: &Self) -> Ordering {
        let scale = usize::from(self.scale().max(other.scale()));
        let magnitudes = compare(&self.magnitude(scale).digits, &other.magnitude(scale).digits);
        match (self.is_zero() && other.is_zero(), self.negative, other.negative) {
            (true, ..) => Ordering::Equal,
            (_, false, false) => magnitudes,
            (_, true, true) => magnitudes.reverse(),
            (_, true, false) => Ordering::Less,
            (_, false, true) => Ordering::Greater,
        }
    }

    /// The greatest whole number not above this one.
    pub fn floor(&self) -> Option<Self> {
        let whole = self.truncated(0)?;
        if self.negative && whole.compare(self) != Ordering::Equal {
            return whole.checked_sub(&Self::from(1_i64));
        }
        Some(whole)
    }

    /// The number cut to `scale` fractional digits.
    pub fn truncated(&self, scale: u8) -> Option<Self> {
        let Digits { int, mut frac } = self.digits();
        frac.truncate(usize::from(scale));
        Self::from_digits(self.negative, &int, &frac)
    }
}

fn trimmed(digits: &[u8]) -> &[u8] {
    digits.iter().position(|digit| *digit != 0).and_then(|at| digits.get(at..)).unwrap_or_default()
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (trimmed(a), trimmed(b));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Pairs the digits from the last one on; the shorter number is filled up with zeros.
fn paired<'d>(a: &'d [u8], b: &'d [u8]) -> impl Iterator<Item = (u8, u8)> + 'd {
    let digit = |digits: &[u8], at: usize| digits.iter().rev().nth(at).copied().unwrap_or(0);
    (0..a.len().max(b.len())).map(move |at| (digit(a, at), digit(b, at)))
}

fn add(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let mut sum: Vec<u8> = paired(a, b)
        .map(|(a, b)| {
            let total = a + b + carry;
            carry = total / 10;
            total % 10
        })
        .collect();
    sum.push(carry);
    sum.reverse();
    sum
}

/// `a - b`, where `a` is not the smaller one.
fn subtract(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    let mut difference: Vec<u8> = paired(a, b)
        .map(|(a, b)| {
            let total = a + 10 - b - borrow;
            borrow = u8::from(total < 10);
            total % 10
        })
        .collect();
    difference.reverse();
    difference
}

fn multiply(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut product = vec![0_u32; a.len() + b.len()];
    for (i, x) in a.iter().rev().enumerate() {
        for (slot, y) in product.iter_mut().skip(i).zip(b.iter().rev()) {
            *slot += u32::from(*x) * u32::from(*y);
        }
    }
    let mut carry = 0;
    let mut digits: Vec<u8> = product
        .iter()
        .map(|sum| {
            let total = sum + carry;
            carry = total / 10;
            u8::try_from(total % 10).unwrap_or_default()
        })
        .collect();
    digits.reverse();
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dec(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn sums_products_and_quotients_are_exact() {
        assert_eq!(dec("0.1").checked_add(&dec("0.25")), Some(dec("0.35")));
        assert_eq!(dec("1").checked_sub(&dec("1.00")), Some(dec("0.00")));
        assert_eq!(dec("-1.5").checked_mul(&dec("2.25")), Some(dec("-3.375")));
        assert_eq!(dec("7.5").checked_rem(&dec("-2")), Some(dec("1.5")));
        assert_eq!(dec("1").checked_div(&dec("0")), None);
        // Nine digits after the point: four more than the dividend's none, filled up to a word.
        assert_eq!(dec("1").checked_div(&dec("3")), Some(dec("0.333333333")));
        assert_eq!(dec("-1.5").floor(), Some(dec("-2")));
    }

    proptest! {
        #[test]
        fn small_numbers_calculate_as_integers_do(
            a in -1_000_000_i64..1_000_000,
            b in -1_000_000_i64..1_000_000,
        ) {
            let (x, y) = (Decimal::from(a), Decimal::from(b));
            prop_assert_eq!(x.checked_add(&y), Some(Decimal::from(a + b)));
            prop_assert_eq!(x.checked_sub(&y), Some(Decimal::from(a - b)));
            prop_assert_eq!(x.checked_mul(&y), Some(Decimal::from(a * b)));
            prop_assert_eq!(x.compare(&y), a.cmp(&b));
            if b != 0 {
                prop_assert_eq!(x.checked_rem(&y), Some(Decimal::from(a % b)));
                prop_assert_eq!(x.checked_div(&y).unwrap().truncated(0), Some(Decimal::from(a / b)));
            }
        }
    }
}
