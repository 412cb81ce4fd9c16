//! DATE, DATETIME, TIMESTAMP and TIME (`reference/tidb-keys-and-rows.md` §1.6, §5.7, §5.8).
//!
//! Zero and partial dates (`2024-00-00`) are legal values, so no calendar library can hold them: a [`Time`]
//! keeps the fields as TiDB packed them.

use std::fmt;

/// Most digits of fractional seconds.
pub const FSP_MAX: u8 = 6;
/// The type's limit: 838:59:59 and just under a second more.
pub const DURATION_NANOS_MAX: i64 = (838 * 3600 + 59 * 60 + 59) * NANOS_PER_SECOND + 999_999_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROSECOND_BITS: u32 = 24;

/// A calendar date with or without time of day, in TiDB's packed form, and how many fractional digits its
/// column shows. No zone: a TIMESTAMP is in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    packed: u64,
    fsp: u8,
}

/// The fields of a [`Time`], each as it would be written; months and days may be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeFields {
    /// 0 to 9999.
    pub year: u16,
    /// 0 to 12.
    pub month: u8,
    /// 0 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// 0 to 999,999.
    pub microsecond: u32,
}

impl Time {
    /// Wraps a packed value that is shown with `fsp` (0 to 6) fractional digits. `None` when no calendar
    /// time packs to it.
    pub fn from_packed(packed: u64, fsp: u8) -> Option<Self> {
        let time = Self { packed, fsp: fsp.min(FSP_MAX) };
        let fields = time.fields();
        let sound = packed >> (MICROSECOND_BITS + 17 + 5) <= 9999 * 13 + 12
            && fields.hour < 24
            && fields.minute < 60
            && fields.second < 60
            && fields.microsecond < 1_000_000;
        sound.then_some(time)
    }

    /// Packs fields. `None` when one is out of its range.
    pub fn from_fields(fields: &TimeFields, fsp: u8) -> Option<Self> {
        if fields.year > 9999 || fields.month > 12 || fields.day > 31 {
            return None;
        }
        let ymd = (u64::from(fields.year) * 13 + u64::from(fields.month)) << 5 | u64::from(fields.day);
        let hms = u64::from(fields.hour) << 12 | u64::from(fields.minute) << 6 | u64::from(fields.second);
        Self::from_packed((ymd << 17 | hms) << MICROSECOND_BITS | u64::from(fields.microsecond), fsp)
    }

    /// The packed value.
    pub const fn packed(self) -> u64 {
        self.packed
    }

    /// Fractional digits shown.
    pub const fn fsp(self) -> u8 {
        self.fsp
    }

    /// Whether this is the zero date, `0000-00-00 00:00:00`.
    pub const fn is_zero(self) -> bool {
        self.packed == 0
    }

    /// The fields.
    pub const fn fields(self) -> TimeFields {
        let seconds = self.packed >> MICROSECOND_BITS;
        let ymd = seconds >> 17;
        TimeFields {
            year: ((ymd >> 5) / 13) as u16,
            month: ((ymd >> 5) % 13) as u8,
            day: (ymd & 31) as u8,
            hour: ((seconds >> 12) & 31) as u8,
            minute: ((seconds >> 6) & 63) as u8,
            second: (seconds & 63) as u8,
            microsecond: (self.packed & ((1 << MICROSECOND_BITS) - 1)) as u32,
        }
    }

    /// Microseconds since 1970-01-01 00:00:00 of the same clock (UTC for a TIMESTAMP). `None` for zero and
    /// partial dates, which are no instant.
    pub fn unix_micros(self) -> Option<i64> {
        let fields = self.fields();
        if fields.month == 0 || fields.day == 0 {
            return None;
        }
        let days = days_from_civil(i64::from(fields.year), i64::from(fields.month), i64::from(fields.day));
        let seconds = days * 86_400
            + i64::from(fields.hour) * 3600
            + i64::from(fields.minute) * 60
            + i64::from(fields.second);
        Some(seconds * MICROS_PER_SECOND + i64::from(fields.microsecond))
    }

    /// The calendar time of an instant, in UTC. `None` outside the years 0 to 9999.
    pub fn from_unix_micros(micros: i64, fsp: u8) -> Option<Self> {
        let seconds = micros.div_euclid(MICROS_PER_SECOND);
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        let small = |value: i64| u8::try_from(value).ok();
        let fields = TimeFields {
            year: u16::try_from(year).ok()?,
            month: small(month)?,
            day: small(day)?,
            hour: small(of_day / 3600)?,
            minute: small(of_day / 60 % 60)?,
            second: small(of_day % 60)?,
            microsecond: u32::try_from(micros.rem_euclid(MICROS_PER_SECOND)).ok()?,
        };
        Self::from_fields(&fields, fsp)
    }

    /// Reads `YYYY-MM-DD[ HH:MM:SS[.ffffff]]`, `T` allowed for the blank. `None` for anything else.
    pub fn parse(text: &str, fsp: u8) -> Option<Self> {
        let (date, clock) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
        let mut date = date.splitn(3, '-');
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let mut clock = clock.splitn(3, ':');
        let fields = TimeFields {
            year: digits(date.next()?)?,
            month: digits(date.next()?)?,
            day: digits(date.next()?)?,
            hour: digits(clock.next()?)?,
            minute: digits(clock.next()?)?,
            second: digits(clock.next().unwrap_or("0"))?,
            microsecond: parse_micros(fraction)?,
        };
        Self::from_fields(&fields, fsp)
    }

    /// Appends `YYYY-MM-DD`.
    pub fn write_date(self, out: &mut Vec<u8>) {
        let fields = self.fields();
        let [c, y] =
            [fields.year / 100, fields.year % 100].map(|part| u8::try_from(part).unwrap_or_default());
        let [c1, c2] = two(c);
        let [y1, y2] = two(y);
        let [m1, m2] = two(fields.month);
        let [d1, d2] = two(fields.day);
        out.extend_from_slice(&[c1, c2, y1, y2, b'-', m1, m2, b'-', d1, d2]);
    }

    /// Appends `YYYY-MM-DD HH:MM:SS` and the fractional digits.
    pub fn write_datetime(self, out: &mut Vec<u8>) {
        let fields = self.fields();
        self.write_date(out);
        out.push(b' ');
        write_clock(fields.hour, fields.minute, fields.second, out);
        write_fraction(fields.microsecond, self.fsp, out);
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write_datetime(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// TIME: a signed span, and how many fractional digits its column shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanos: i64,
    fsp: u8,
}

impl Duration {
    /// A span of nanoseconds shown with `fsp` (0 to 6) fractional digits.
    pub fn new(nanos: i64, fsp: u8) -> Self {
        Self { nanos, fsp: fsp.min(FSP_MAX) }
    }

    /// The span in nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.nanos
    }

    /// Fractional digits shown.
    pub const fn fsp(self) -> u8 {
        self.fsp
    }

    /// Reads `[-]H:MM[:SS[.ffffff]]`. `None` for anything else.
    pub fn parse(text: &str, fsp: u8) -> Option<Self> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
        let mut parts = clock.splitn(3, ':');
        let hours: i64 = digits(parts.next()?)?;
        let minutes: i64 = digits(parts.next()?)?;
        let seconds: i64 = digits(parts.next().unwrap_or("0"))?;
        if hours > 838 || minutes > 59 || seconds > 59 {
            return None;
        }
        let seconds = hours * 3600 + minutes * 60 + seconds;
        let nanos = seconds * NANOS_PER_SECOND + i64::from(parse_micros(fraction)?) * 1000;
        Some(Self::new(if negative { -nanos } else { nanos }, fsp))
    }

    /// Appends `[-]HH:MM:SS` (hours may have three digits) and the fractional digits.
    pub fn write_text(self, out: &mut Vec<u8>) {
        if self.nanos < 0 {
            out.push(b'-');
        }
        let nanos = self.nanos.unsigned_abs();
        let seconds = nanos / 1_000_000_000;
        let hours = seconds / 3600;
        match u8::try_from(hours) {
            Ok(hours) if hours < 100 => out.extend_from_slice(&two(hours)),
            _ => out.extend_from_slice(itoa::Buffer::new().format(hours).as_bytes()),
        }
        let [minute, second] = [seconds / 60 % 60, seconds % 60].map(|part| part.to_le_bytes()[0]);
        out.push(b':');
        let [m1, m2] = two(minute);
        let [s1, s2] = two(second);
        out.extend_from_slice(&[m1, m2, b':', s1, s2]);
        let micros = u32::try_from(nanos % 1_000_000_000 / 1000).unwrap_or_default();
        write_fraction(micros, self.fsp, out);
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write_text(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// Two decimal digits of a number below 100.
const fn two(value: u8) -> [u8; 2] {
    [b'0' + value / 10 % 10, b'0' + value % 10]
}

fn write_clock(hour: u8, minute: u8, second: u8, out: &mut Vec<u8>) {
    let [h1, h2] = two(hour);
    let [m1, m2] = two(minute);
    let [s1, s2] = two(second);
    out.extend_from_slice(&[h1, h2, b':', m1, m2, b':', s1, s2]);
}

/// Appends `.` and the first `fsp` of the six digits of `micros`; nothing when `fsp` is 0.
fn write_fraction(micros: u32, fsp: u8, out: &mut Vec<u8>) {
    if fsp == 0 {
        return;
    }
    let end = out.len() + 1 + usize::from(fsp);
    out.push(b'.');
    for part in [micros / 10_000, micros / 100 % 100, micros % 100] {
        out.extend_from_slice(&two(part.to_le_bytes()[0]));
    }
    out.truncate(end);
}

/// Unsigned decimal digits only: no sign, no blank.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The microseconds that up to six fractional digits mean; further digits are cut.
fn parse_micros(fraction: &str) -> Option<u32> {
    let fraction = fraction.get(..6).unwrap_or(fraction);
    if fraction.is_empty() {
        return Some(0);
    }
    let scale = 10_u32.checked_pow(u32::try_from(6_usize.checked_sub(fraction.len())?).ok()?)?;
    Some(digits::<u32>(fraction)? * scale)
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar. Counting in years that begin in
/// March puts the leap day last, so that the days before a month follow from one linear formula.
pub(crate) const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Undoes [`days_from_civil`].
pub(crate) const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(time: Time) -> String {
        format!("{time:?}")
    }

    #[test]
    fn packed_times_of_the_reference_are_read_and_built() {
        let cases = [
            ("2020-02-20 02:20:20", 0, 0x19a5_a825_1400_0000),
            ("2020-02-20 00:00:00", 0, 0x19a5_a800_0000_0000),
            ("2023-11-05 23:59:59.123456", 6, 0x19b1_8b7e_fb01_e240),
            ("1970-01-01 00:00:01", 0, 0x1902_c200_0100_0000),
            ("9999-12-31 23:59:59.999999", 6, 0x7ef3_ff7e_fb0f_423f),
            ("2023-00-00 00:00:00", 0, 0x19ae_c000_0000_0000),
            ("2023-02-00 00:00:00", 0, 0x19af_4000_0000_0000),
            ("0000-00-00 00:00:00", 0, 0),
        ];
        for (shown, fsp, packed) in cases {
            assert_eq!(text(Time::from_packed(packed, fsp).unwrap()), shown);
            assert_eq!(Time::parse(shown, fsp).unwrap().packed(), packed);
        }
    }

    #[test]
    fn fractional_digits_are_cut_to_the_columns_count() {
        let time = Time::parse("2023-11-05 23:59:59.123456", 3).unwrap();
        assert_eq!(text(time), "2023-11-05 23:59:59.123");
        let mut date = Vec::new();
        time.write_date(&mut date);
        assert_eq!(date, b"2023-11-05");
    }

    #[test]
    fn durations_print_sign_hours_and_fraction() {
        let cases = [
            (8_420_000_000_000, 0, "02:20:20"),
            (-3_020_399_000_000_000, 0, "-838:59:59"),
            (-3_723_450_000_000, 2, "-01:02:03.45"),
            (500_000_000, 3, "00:00:00.500"),
            (-1000, 6, "-00:00:00.000001"),
        ];
        for (nanos, fsp, shown) in cases {
            let duration = Duration::new(nanos, fsp);
            assert_eq!(format!("{duration:?}"), shown);
            assert_eq!(Duration::parse(shown, fsp), Some(duration));
        }
    }

    #[test]
    fn instants_are_counted_from_the_unix_epoch() {
        // 2020-02-20 is 50 years of 365 days, 12 leap days (1972 to 2016), 31 + 19 days after 1970-01-01.
        let micros = ((50 * 365 + 12 + 31 + 19) * 86_400 + 2 * 3600 + 20 * 60 + 20) * 1_000_000;
        let time = Time::parse("2020-02-20 02:20:20", 0).unwrap();
        assert_eq!(time.unix_micros(), Some(micros));
        assert_eq!(Time::from_unix_micros(micros, 0), Some(time));
        assert_eq!(Time::parse("2020-00-20", 0).unwrap().unix_micros(), None);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in ["", "2020", "2020-13-01", "2020-01-01 24:00:00", "2020-01-01 00:60:00", "x-y-z", "-1-1-1"]
        {
            assert_eq!(Time::parse(bad, 0), None, "{bad}");
        }
        assert_eq!(Time::from_packed(u64::MAX, 0), None);
        for bad in ["", "12", "1:60:00", "839:00:00", "a:b:c"] {
            assert_eq!(Duration::parse(bad, 0), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn instants_round_trip(micros in -62_135_596_800_000_000_i64..253_402_300_800_000_000) {
            let time = Time::from_unix_micros(micros, 6).unwrap();
            prop_assert_eq!(time.unix_micros(), Some(micros));
            prop_assert_eq!(Time::parse(&text(time), 6), Some(time));
        }

        #[test]
        fn any_packed_value_prints_without_panic(packed: u64, nanos: i64, fsp: u8) {
            if let Some(time) = Time::from_packed(packed, fsp) {
                let parsed = Time::parse(&text(time), time.fsp());
                prop_assert_eq!(parsed.map(|parsed| parsed.fields().year), Some(time.fields().year));
            }
            let _ = format!("{:?}", Duration::new(nanos, fsp));
        }

        #[test]
        fn any_text_parses_or_fails_without_panic(text: String) {
            let _ = (Time::parse(&text, 0), Duration::parse(&text, 0));
        }
    }
}
