//! Sizes and durations as people write them in a configuration: `64MiB`, `250ms`.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

/// Units of a size, in bytes. Without the `i` they count in thousands, as disks are sold.
const SIZES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Units of a span, in milliseconds.
const SPANS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)];

trait Quantity: Sized {
    const EXAMPLE: &'static str;
    const UNITS: &'static [(&'static str, u64)];
    fn from_units(count: u64) -> Option<Self>;
}

impl Quantity for Size {
    const EXAMPLE: &'static str = "a size such as \"64MiB\"";
    const UNITS: &'static [(&'static str, u64)] = SIZES;

    fn from_units(count: u64) -> Option<Self> {
        usize::try_from(count).ok().map(Self)
    }
}

impl Quantity for Span {
    const EXAMPLE: &'static str = "a duration such as \"250ms\" or \"5s\"";
    const UNITS: &'static [(&'static str, u64)] = SPANS;

    fn from_units(count: u64) -> Option<Self> {
        Some(Self(Duration::from_millis(count)))
    }
}

fn parse<Q: Quantity>(text: &str) -> Option<Q> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, factor) = Q::UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    Q::from_units(number.parse::<u64>().ok()?.checked_mul(*factor)?)
}

struct QuantityVisitor<Q>(PhantomData<Q>);

impl<Q: Quantity> Visitor<'_> for QuantityVisitor<Q> {
    type Value = Q;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Q::EXAMPLE)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Q, E> {
        parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(QuantityVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(QuantityVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_carry_their_unit() {
        assert_eq!(parse("64MiB"), Some(Size(64 * 1024 * 1024)));
        assert_eq!(parse("10 kB"), Some(Size(10_000)));
        assert_eq!(parse("250ms"), Some(Span(Duration::from_millis(250))));
        assert_eq!(parse("2min"), Some(Span(Duration::from_secs(120))));
    }

    #[test]
    fn a_number_without_a_unit_or_with_a_wrong_one_is_refused() {
        for wrong in ["64", "MiB", "64mib", "-1B", "1.5GB", "", "99999999999999999999B"] {
            assert_eq!(parse::<Size>(wrong), None, "{wrong}");
        }
        assert_eq!(parse::<Span>("5 days"), None);
    }
}
