//! Operators, by MySQL's rules for mixed types.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{Binary, Columns, Expr, GeneratedError, Result, Truth, Unary, datetime, functions};
use crate::convert::{Context, Number, convert, datetime_from_text, number_of, plain_text, unquoted};
use crate::decimal::Decimal;
use crate::json::JsonNode;
use crate::time::{FSP_MAX, Time};
use crate::value::Value;

/// Conversions inside a SELECT: a negative number wraps around in an unsigned type. TIME values become
/// DATETIMEs of the current day there, which no stored row can reproduce; the epoch stands in.
pub(super) const SELECT: Context = Context { clip_negative: false, today: 0 };

pub(super) struct Evaluator<'e> {
    pub(super) columns: &'e dyn Columns,
}

impl Evaluator<'_> {
    pub(super) fn value(&self, expr: &Expr) -> Result<Value<'static>> {
        match expr {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Column(index) => self.columns.value(*index),
            Expr::Unary(operator, operand) => unary(*operator, &self.value(operand)?),
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expr::Is(operand, truth, negated) => {
                let operand = self.value(operand)?;
                let holds = match truth {
                    Truth::Null => operand.is_null(),
                    Truth::True => truth_of(&operand) == Some(true),
                    Truth::False => truth_of(&operand) == Some(false),
                };
                Ok(boolean(Some(holds != *negated)))
            }
            Expr::In(operand, list) => self.membership(operand, list),
            Expr::Between(operand, bounds) => {
                let (low, high) = bounds.as_ref();
                let above = self.binary(Binary::GreaterEqual, operand, low)?;
                let below = self.binary(Binary::LessEqual, operand, high)?;
                Ok(boolean(and(truth_of(&above), truth_of(&below))))
            }
            Expr::Like(operand, pattern, escape) => {
                let fold = self.ignores_case(operand);
                let (text, pattern) = (self.value(operand)?, self.value(pattern)?);
                if text.is_null() || pattern.is_null() {
                    return Ok(Value::Null);
                }
                let like = functions::like(&folded(&text, fold), &folded(&pattern, fold), *escape);
                Ok(boolean(Some(like)))
            }
            Expr::Case(operand, branches, otherwise) => {
                self.case(operand.as_deref(), branches, otherwise.as_deref())
            }
            Expr::Cast(operand, to) => {
                let operand = self.value(operand)?;
                convert(&operand, to, SELECT).map_err(|_| GeneratedError::OutOfRange)
            }
            Expr::Interval(date, amount, unit, subtract) => {
                datetime::add_interval(&self.value(date)?, &self.value(amount)?, unit, *subtract)
            }
            Expr::Call(name, arguments) => self.call(name, arguments),
        }
    }

    fn ignores_case(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Column(index) if self.columns.ignores_case(*index))
    }

    /// Functions whose arguments are not all computed, then all the others.
    fn call(&self, name: &str, arguments: &[Expr]) -> Result<Value<'static>> {
        match (name, arguments) {
            ("if", [condition, yes, no]) => {
                let holds = truth_of(&self.value(condition)?) == Some(true);
                self.value(if holds { yes } else { no })
            }
            ("ifnull" | "coalesce", arguments) => {
                for argument in arguments {
                    let value = self.value(argument)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            ("nullif", [left, right]) => {
                let equal = self.binary(Binary::Equal, left, right)?;
                if truth_of(&equal) == Some(true) { Ok(Value::Null) } else { self.value(left) }
            }
            _ => {
                let values: Vec<_> = arguments.iter().map(|expr| self.value(expr)).collect::<Result<_>>()?;
                functions::call(name, &values)
            }
        }
    }

    fn case(
        &self,
        operand: Option<&Expr>,
        branches: &[(Expr, Expr)],
        otherwise: Option<&Expr>,
    ) -> Result<Value<'static>> {
        for (when, then) in branches {
            let holds = match operand {
                Some(operand) => self.binary(Binary::Equal, operand, when)?,
                None => self.value(when)?,
            };
            if truth_of(&holds) == Some(true) {
                return self.value(then);
            }
        }
        otherwise.map_or(Ok(Value::Null), |otherwise| self.value(otherwise))
    }

    /// `IN`: true if one is equal, else unknown if one is NULL, else false.
    fn membership(&self, operand: &Expr, list: &[Expr]) -> Result<Value<'static>> {
        let mut unknown = false;
        for item in list {
            match truth_of(&self.binary(Binary::Equal, operand, item)?) {
                Some(true) => return Ok(boolean(Some(true))),
                Some(false) => {}
                None => unknown = true,
            }
        }
        Ok(boolean(if unknown { None } else { Some(false) }))
    }

    fn binary(&self, operator: Binary, left: &Expr, right: &Expr) -> Result<Value<'static>> {
        let fold = self.ignores_case(left) || self.ignores_case(right);
        let (a, b) = (self.value(left)?, self.value(right)?);
        let comparison = |accept: fn(Ordering) -> bool| {
            let known = !a.is_null() && !b.is_null();
            Ok(boolean(known.then(|| accept(compare(&a, &b, fold)))))
        };
        match operator {
            Binary::Equal => comparison(Ordering::is_eq),
            Binary::NotEqual => comparison(Ordering::is_ne),
            Binary::Less => comparison(Ordering::is_lt),
            Binary::LessEqual => comparison(Ordering::is_le),
            Binary::Greater => comparison(Ordering::is_gt),
            Binary::GreaterEqual => comparison(Ordering::is_ge),
            Binary::NullEqual => Ok(boolean(Some(match (a.is_null(), b.is_null()) {
                (false, false) => compare(&a, &b, fold).is_eq(),
                (x, y) => x && y,
            }))),
            Binary::And => Ok(boolean(and(truth_of(&a), truth_of(&b)))),
            Binary::Or => Ok(boolean(or(truth_of(&a), truth_of(&b)))),
            Binary::Xor => Ok(boolean(truth_of(&a).zip(truth_of(&b)).map(|(a, b)| a != b))),
            _ if a.is_null() || b.is_null() => Ok(Value::Null),
            Binary::BitAnd | Binary::BitOr | Binary::BitXor | Binary::ShiftLeft | Binary::ShiftRight => {
                Ok(Value::UInt(bits(operator, number_of(&a).to_u64(false), number_of(&b).to_u64(false))))
            }
            _ => arithmetic(operator, &a, &b),
        }
    }
}

/// SQL's three-valued truth as a value.
pub(super) fn boolean(truth: Option<bool>) -> Value<'static> {
    truth.map_or(Value::Null, |truth| Value::Int(i64::from(truth)))
}

/// Whether a value counts as true; `None` for NULL.
pub(super) fn truth_of(value: &Value<'_>) -> Option<bool> {
    match value {
        Value::Null | Value::Virtual => None,
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => Some(!time.is_zero()),
        other => Some(match number_of(other) {
            Number::Int(int) => int != 0,
            Number::UInt(uint) => uint != 0,
            Number::Decimal(decimal) => !decimal.is_zero(),
            number => number.to_f64() != 0.0,
        }),
    }
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    and(a.map(|a| !a), b.map(|b| !b)).map(|neither| !neither)
}

fn bits(operator: Binary, a: u64, b: u64) -> u64 {
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    match operator {
        Binary::BitAnd => a & b,
        Binary::BitOr => a | b,
        Binary::BitXor => a ^ b,
        Binary::ShiftLeft => a.checked_shl(shift).unwrap_or(0),
        _ => a.checked_shr(shift).unwrap_or(0),
    }
}

fn unary(operator: Unary, operand: &Value<'_>) -> Result<Value<'static>> {
    if operand.is_null() {
        return Ok(Value::Null);
    }
    match operator {
        Unary::Not => Ok(boolean(truth_of(operand).map(|truth| !truth))),
        Unary::Invert => Ok(Value::UInt(!number_of(operand).to_u64(false))),
        Unary::Minus => match Operand::of(operand) {
            Operand::Int(int, _) => signed(-int).or(Ok(Value::Decimal(decimal_of(-int)?))),
            Operand::Decimal(decimal) => Ok(Value::Decimal(decimal.negated())),
            Operand::Real(real) => Ok(Value::Double(-real)),
        },
    }
}

/// A number as arithmetic takes it: integers exact and wide, with whether they are unsigned; texts and JSON
/// as floats; times as their digits.
enum Operand {
    Int(i128, bool),
    Decimal(Decimal),
    Real(f64),
}

impl Operand {
    fn of(value: &Value<'_>) -> Self {
        match number_of(value) {
            Number::Int(int) => Self::Int(i128::from(int), false),
            Number::UInt(uint) => Self::Int(i128::from(uint), true),
            Number::Decimal(decimal) if decimal.scale() == 0 && !matches!(value, Value::Decimal(_)) => {
                Self::Int(i128::from(decimal.to_i64()), false)
            }
            Number::Decimal(decimal) => Self::Decimal(decimal),
            number => Self::Real(number.to_f64()),
        }
    }
}

fn decimal_of(int: i128) -> Result<Decimal> {
    Decimal::parse(&int.to_string()).ok_or(GeneratedError::OutOfRange)
}

fn signed(int: i128) -> Result<Value<'static>> {
    i64::try_from(int).map(Value::Int).map_err(|_| GeneratedError::OutOfRange)
}

/// `+ - * / DIV %`: floats if one operand is one, else exact numbers if one has a point, else integers,
/// unsigned if one is.
pub(super) fn arithmetic(operator: Binary, a: &Value<'_>, b: &Value<'_>) -> Result<Value<'static>> {
    match (operator, Operand::of(a), Operand::of(b)) {
        (Binary::Divide, Operand::Int(a, _), Operand::Int(b, _)) => {
            exact(operator, &decimal_of(a)?, &decimal_of(b)?)
        }
        (_, Operand::Int(a, a_unsigned), Operand::Int(b, b_unsigned)) => {
            integer(operator, a, b, a_unsigned || b_unsigned)
        }
        (Binary::IntDivide, a, b) => exact(operator, &to_decimal(a)?, &to_decimal(b)?),
        (_, Operand::Real(a), b) => Ok(real(operator, a, to_real(b))),
        (_, a, Operand::Real(b)) => Ok(real(operator, to_real(a), b)),
        (_, a, b) => exact(operator, &to_decimal(a)?, &to_decimal(b)?),
    }
}

fn to_decimal(operand: Operand) -> Result<Decimal> {
    match operand {
        Operand::Int(int, _) => decimal_of(int),
        Operand::Decimal(decimal) => Ok(decimal),
        Operand::Real(real) => Ok(Decimal::from_f64(real)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "mixed arithmetic is done in doubles, as in TiDB")]
fn to_real(operand: Operand) -> f64 {
    match operand {
        Operand::Int(int, _) => int as f64,
        Operand::Decimal(decimal) => decimal.to_f64(),
        Operand::Real(real) => real,
    }
}

fn integer(operator: Binary, a: i128, b: i128, unsigned: bool) -> Result<Value<'static>> {
    let result = match operator {
        Binary::Add => a.checked_add(b),
        Binary::Subtract => a.checked_sub(b),
        Binary::Multiply => a.checked_mul(b),
        _ if b == 0 => return Ok(Value::Null),
        Binary::IntDivide => a.checked_div(b),
        _ => a.checked_rem(b),
    };
    let result = result.ok_or(GeneratedError::OutOfRange)?;
    // A remainder has the sign of the dividend, whatever the divisor is.
    if unsigned && !(operator == Binary::Modulo && a < 0) {
        return u64::try_from(result).map(Value::UInt).map_err(|_| GeneratedError::OutOfRange);
    }
    signed(result)
}

fn exact(operator: Binary, a: &Decimal, b: &Decimal) -> Result<Value<'static>> {
    let result = match operator {
        Binary::Add => a.checked_add(b),
        Binary::Subtract => a.checked_sub(b),
        Binary::Multiply => a.checked_mul(b),
        _ if b.is_zero() => return Ok(Value::Null),
        Binary::Divide => a.checked_div(b),
        Binary::IntDivide => {
            let whole = a.checked_div(b).and_then(|quotient| quotient.truncated(0));
            let int = whole.and_then(|whole| whole.to_string().parse().ok());
            return int.map(Value::Int).ok_or(GeneratedError::OutOfRange);
        }
        _ => a.checked_rem(b),
    };
    result.map(Value::Decimal).ok_or(GeneratedError::OutOfRange)
}

fn real(operator: Binary, a: f64, b: f64) -> Value<'static> {
    match operator {
        Binary::Add => Value::Double(a + b),
        Binary::Subtract => Value::Double(a - b),
        Binary::Multiply => Value::Double(a * b),
        _ if b == 0.0 => Value::Null,
        Binary::Divide => Value::Double(a / b),
        _ => Value::Double(a % b),
    }
}

const fn is_textual(value: &Value<'_>) -> bool {
    matches!(value, Value::Text(_) | Value::Bytes(_) | Value::Enum { .. } | Value::Set { .. })
}

const fn time_of(value: &Value<'_>) -> Option<Time> {
    match value {
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => Some(*time),
        _ => None,
    }
}

/// The text of a value, as it is compared.
fn folded(value: &Value<'_>, fold: bool) -> String {
    let text = plain_text(value);
    if fold { text.to_lowercase() } else { text }
}

/// How two values that are not NULL compare.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>, fold: bool) -> Ordering {
    if let (Value::Bytes(a), Value::Bytes(b)) = (a, b) {
        return a.cmp(b);
    }
    let parsed = |value: &Value<'_>| {
        let text = if is_textual(value) { Some(plain_text(value)) } else { None };
        time_of(value).or_else(|| datetime_from_text(&text?, FSP_MAX, false))
    };
    if (time_of(a).is_some() || time_of(b).is_some())
        && let (Some(a), Some(b)) = (parsed(a), parsed(b))
    {
        return a.packed().cmp(&b.packed());
    }
    let text = |value: &Value<'_>| match value {
        Value::Json(json) if matches!(json.root().node(), Ok(JsonNode::String(_))) => Some(unquoted(json)),
        value if is_textual(value) => Some(folded(value, fold)),
        _ => None,
    };
    if let (Some(a), Some(b)) = (text(a), text(b)) {
        return a.trim_end_matches(' ').cmp(b.trim_end_matches(' '));
    }
    compare_numbers(&number_of(a), &number_of(b))
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    let inexact = |number: &Number| matches!(number, Number::Float(_) | Number::Text(_));
    if inexact(a) || inexact(b) {
        return a.to_f64().total_cmp(&b.to_f64());
    }
    a.to_decimal().compare(&b.to_decimal())
}

/// Bytes of a value where a function wants a string.
pub(super) fn bytes_of<'v>(value: &'v Value<'_>) -> Cow<'v, [u8]> {
    match value {
        Value::Bytes(bytes) => Cow::Borrowed(bytes),
        Value::Text(text) => Cow::Borrowed(text.as_bytes()),
        other => Cow::Owned(plain_text(other).into_bytes()),
    }
}
