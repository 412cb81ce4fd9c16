//! How a written value is read by a field's type.

use super::request::{Edge, Literal};
use crate::text::document::exact_term;
use crate::text::layout::Kind;
use crate::text::order::{decimal_key, float_key, int_key};

/// A number as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    UInt(u64),
    Int(i64),
    Float(f64),
}

/// A value compared with JSON members: it keeps the type it was written in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Bool(bool),
    Text(String),
    Number(Number),
}

/// A literal as a JSON value.
pub(crate) fn json(literal: &Literal) -> Json {
    match literal {
        Literal::Bool(b) => Json::Bool(*b),
        Literal::UInt(n) => Json::Number(Number::UInt(*n)),
        Literal::Int(n) => Json::Number(Number::Int(*n)),
        Literal::Float(x) => Json::Number(Number::Float(*x)),
        Literal::Text(text) => Json::Text(text.clone()),
    }
}

/// The literal's text, as it would be written.
fn text_of(literal: &Literal) -> String {
    match literal {
        Literal::Bool(b) => b.to_string(),
        Literal::UInt(n) => n.to_string(),
        Literal::Int(n) => n.to_string(),
        Literal::Float(x) => x.to_string(),
        Literal::Text(text) => text.clone(),
    }
}

/// The term of the exact column that equals the literal.
pub(crate) fn exact_key(kind: Kind, literal: &Literal) -> Result<String, String> {
    let text = text_of(literal);
    match kind {
        Kind::Decimal => decimal_key(&text).ok_or_else(|| format!("{text:?} is not a decimal number")),
        Kind::Bytes => {
            let hex = text.strip_prefix("0x").unwrap_or(&text).to_ascii_lowercase();
            let is_hex = hex.bytes().all(|b| b.is_ascii_hexdigit());
            is_hex.then(|| exact_term(&hex)).ok_or_else(|| format!("{text:?} is not hexadecimal"))
        }
        _ => Ok(exact_term(&text)),
    }
}

/// The key of the numeric column that equals the literal; `None` if no value of the column can equal it.
pub(crate) fn number_key(kind: Kind, literal: &Literal) -> Result<Option<u64>, String> {
    let edge = Edge { value: literal.clone(), inclusive: true };
    let bounds = number_bounds(kind, Some(&edge), Some(&edge))?;
    Ok(bounds.filter(|(low, high)| low == high).map(|(low, _)| low))
}

/// The inclusive bounds of a range in the numeric column; `None` if no value lies in it.
pub(crate) fn number_bounds(
    kind: Kind,
    from: Option<&Edge>,
    to: Option<&Edge>,
) -> Result<Option<(u64, u64)>, String> {
    let low = from.map_or(Ok(Some(0)), |edge| lower(kind, edge))?;
    let high = to.map_or(Ok(Some(u64::MAX)), |edge| upper(kind, edge))?;
    Ok(low.zip(high).filter(|(low, high)| low <= high))
}

fn lower(kind: Kind, edge: &Edge) -> Result<Option<u64>, String> {
    let exact = read(kind, &edge.value)?;
    Ok(match exact {
        Read::Key(key) if edge.inclusive => Some(key),
        Read::Key(key) => key.checked_add(1),
        Read::Between(_, above) => Some(above),
        Read::Below => Some(0),
        Read::Above => None,
    })
}

fn upper(kind: Kind, edge: &Edge) -> Result<Option<u64>, String> {
    let exact = read(kind, &edge.value)?;
    Ok(match exact {
        Read::Key(key) if edge.inclusive => Some(key),
        Read::Key(key) => key.checked_sub(1),
        Read::Between(below, _) => Some(below),
        Read::Below => None,
        Read::Above => Some(u64::MAX),
    })
}

/// Where a literal lies among the values of a column.
enum Read {
    /// It is one of them.
    Key(u64),
    /// It lies between two neighbours.
    Between(u64, u64),
    /// It is less than all of them.
    Below,
    /// It is greater than all of them.
    Above,
}

fn read(kind: Kind, literal: &Literal) -> Result<Read, String> {
    match kind {
        Kind::Bool => match literal {
            Literal::Bool(b) => Ok(Read::Key(u64::from(*b))),
            Literal::UInt(n) if *n <= 1 => Ok(Read::Key(*n)),
            Literal::Text(text) if text == "true" => Ok(Read::Key(1)),
            Literal::Text(text) if text == "false" => Ok(Read::Key(0)),
            other => Err(format!("{:?} is neither true nor false", text_of(other))),
        },
        Kind::Float => match number(literal)? {
            Whole::Int(n) => Ok(Read::Key(float_key(nearest(n)))),
            Whole::Fraction(x) => Ok(Read::Key(float_key(x))),
        },
        Kind::Timestamp if matches!(literal, Literal::Text(_)) => {
            let text = text_of(literal);
            let micros = super::time::micros(&text).or_else(|| text.parse().ok());
            micros.map(|at| Read::Key(int_key(at))).ok_or_else(|| format!("{text:?} is not a time"))
        }
        _ => integer(kind, literal),
    }
}

fn integer(kind: Kind, literal: &Literal) -> Result<Read, String> {
    let (min, max) = if kind == Kind::UInt {
        (0, i128::from(u64::MAX))
    } else {
        (i128::from(i64::MIN), i128::from(i64::MAX))
    };
    let key = |n: i128| match kind {
        Kind::UInt => u64::try_from(n).ok(),
        _ => i64::try_from(n).ok().map(int_key),
    };
    let place = |n: i128| key(n).map_or(if n < min { Read::Below } else { Read::Above }, Read::Key);
    match number(literal)? {
        Whole::Int(n) => Ok(place(n)),
        Whole::Fraction(x) => {
            let below = whole_below(x);
            Ok(match (key(below), key(below.saturating_add(1))) {
                (Some(below), Some(above)) => Read::Between(below, above),
                _ if below < min => Read::Below,
                _ if below >= max => Read::Above,
                _ => Read::Below,
            })
        }
    }
}

enum Whole {
    Int(i128),
    Fraction(f64),
}

fn number(literal: &Literal) -> Result<Whole, String> {
    let fraction = |x: f64| if x.fract() == 0.0 { Whole::Int(whole_below(x)) } else { Whole::Fraction(x) };
    match literal {
        Literal::UInt(n) => Ok(Whole::Int(i128::from(*n))),
        Literal::Int(n) => Ok(Whole::Int(i128::from(*n))),
        Literal::Float(x) if x.is_nan() => Err("NaN is not a number".to_owned()),
        Literal::Float(x) => Ok(fraction(*x)),
        Literal::Bool(b) => Err(format!("{b} is not a number")),
        Literal::Text(text) => {
            let text = text.trim();
            let whole = text.parse().map(Whole::Int).ok();
            let parsed = whole.or_else(|| text.parse().ok().filter(|x: &f64| !x.is_nan()).map(fraction));
            parsed.ok_or_else(|| format!("{text:?} is not a number"))
        }
    }
}

/// The greatest whole number at or below; saturates far outside every column's range.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, and the range of i128 holds every column"
)]
fn whole_below(x: f64) -> i128 {
    x.floor() as i128
}

/// The float nearest to a whole number.
#[expect(clippy::cast_precision_loss, reason = "a float column cannot hold more")]
fn nearest(n: i128) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(value: Literal, inclusive: bool) -> Edge {
        Edge { value, inclusive }
    }

    #[test]
    fn the_largest_unsigned_number_is_read_exactly_also_from_text() {
        let text = Literal::Text("18446744073709551615".to_owned());
        assert_eq!(number_key(Kind::UInt, &text), Ok(Some(u64::MAX)));
        assert_eq!(number_key(Kind::UInt, &Literal::UInt(u64::MAX)), Ok(Some(u64::MAX)));
        assert_eq!(number_key(Kind::UInt, &Literal::Text("18446744073709551616".to_owned())), Ok(None));
        assert_eq!(number_key(Kind::UInt, &Literal::Int(-1)), Ok(None));
    }

    #[test]
    fn bounds_between_and_outside_the_values_of_a_column_are_right() {
        let range =
            |from: Option<Edge>, to: Option<Edge>| number_bounds(Kind::UInt, from.as_ref(), to.as_ref());
        let half = |x, inclusive| edge(Literal::Float(x), inclusive);
        assert_eq!(range(Some(half(1.5, true)), Some(half(3.5, false))), Ok(Some((2, 3))));
        assert_eq!(range(Some(half(-2.5, true)), None), Ok(Some((0, u64::MAX))));
        assert_eq!(range(None, Some(half(-0.5, true))), Ok(None));
        assert_eq!(range(Some(half(1e30, true)), None), Ok(None));
        let max = edge(Literal::UInt(u64::MAX), false);
        assert_eq!(range(Some(max.clone()), None), Ok(None));
        assert_eq!(range(None, Some(max.clone())), Ok(Some((0, u64::MAX - 1))));
    }

    #[test]
    fn what_cannot_be_a_value_of_the_type_is_refused() {
        assert!(number_key(Kind::UInt, &Literal::Text("many".to_owned())).is_err());
        assert!(number_key(Kind::Bool, &Literal::UInt(2)).is_err());
        assert!(exact_key(Kind::Decimal, &Literal::Text("1e5".to_owned())).is_err());
        assert!(exact_key(Kind::Bytes, &Literal::Text("xyz".to_owned())).is_err());
    }
}
