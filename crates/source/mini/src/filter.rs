//! Which tables Follow mode follows: `db.table` patterns.

use std::fmt;

use tidegate_schema::is_system_schema;

use crate::config::ConfigError;

/// A list of `db.table` patterns. `*` stands for any characters, `?` for exactly one, a leading `!` excludes;
/// the last pattern that matches decides, and a table that none matches is not followed. Names compare
/// without case, as TiDB's own do. System schemas never match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFilter {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    exclude: bool,
    schema: String,
    table: String,
}

impl TableFilter {
    /// Follows every user table.
    pub fn all() -> Self {
        Self { rules: vec![Rule { exclude: false, schema: "*".into(), table: "*".into() }] }
    }

    /// Parses patterns such as `shop.*`, `!shop.tmp_?`.
    ///
    /// # Errors
    /// An empty list, and a pattern without a dot or with an empty part; the error names the pattern.
    pub fn parse<S: AsRef<str>>(patterns: &[S]) -> Result<Self, ConfigError> {
        if patterns.is_empty() {
            return Err(ConfigError::NoPatterns);
        }
        let rules = patterns.iter().map(|pattern| parse_rule(pattern.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Whether `schema.table` is followed.
    pub fn matches(&self, schema: &str, table: &str) -> bool {
        if is_system_schema(schema) {
            return false;
        }
        let (schema, table) = (schema.to_lowercase(), table.to_lowercase());
        let last = self.rules.iter().rev().find(|r| wild(&r.schema, &schema) && wild(&r.table, &table));
        last.is_some_and(|rule| !rule.exclude)
    }

    /// Whether some table of `schema` could be followed: decides about events of a whole schema.
    pub fn matches_schema(&self, schema: &str) -> bool {
        let lower = schema.to_lowercase();
        !is_system_schema(schema) && self.rules.iter().any(|r| !r.exclude && wild(&r.schema, &lower))
    }
}

impl fmt::Display for TableFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, rule) in self.rules.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let not = if rule.exclude { "!" } else { "" };
            write!(f, "{comma}{not}{}.{}", rule.schema, rule.table)?;
        }
        Ok(())
    }
}

fn parse_rule(pattern: &str) -> Result<Rule, ConfigError> {
    let (exclude, names) = match pattern.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    match names.split_once('.') {
        Some((schema, table)) if !schema.is_empty() && !table.is_empty() => {
            Ok(Rule { exclude, schema: schema.to_lowercase(), table: table.to_lowercase() })
        }
        _ => Err(ConfigError::BadPattern { pattern: pattern.to_owned() }),
    }
}

/// Whether `name` matches `pattern` (both in lower case). Remembers only the last `*`, so its cost is at
/// most the product of the two lengths.
fn wild(pattern: &str, name: &str) -> bool {
    let (mut pat, mut text) = (pattern.chars(), name.chars());
    let mut retry = None;
    loop {
        let before_text = text.clone();
        match (pat.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = before_text.clone();
                retry = Some((pat.clone(), before_text));
            }
            (Some(p), Some(t)) if p == '?' || p == t => {}
            _ => {
                let Some((star, mut from)) = retry.take() else { return false };
                if from.next().is_none() {
                    return false;
                }
                (pat, text) = (star.clone(), from.clone());
                retry = Some((star, from));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(patterns: &[&str], table: (&str, &str), expect: bool) {
        let filter = TableFilter::parse(patterns).expect("patterns of the test are well formed");
        assert_eq!(filter.matches(table.0, table.1), expect, "{patterns:?} on {table:?}");
    }

    #[test]
    fn stars_stand_for_any_text_and_question_marks_for_one_character() {
        check(&["shop.*"], ("shop", "orders"), true);
        check(&["shop.*"], ("shop2", "orders"), false);
        check(&["s*p.o?ders"], ("shop", "orders"), true);
        check(&["s*p.o?ders"], ("shop", "oders"), false);
        check(&["*.*_log*"], ("a", "x_log"), true);
        check(&["*.a*b*c"], ("a", "aXbXbc"), true);
        check(&["*.a*b*c"], ("a", "aXbXb"), false);
        check(&["*.é?"], ("a", "ÉÜ"), true);
    }

    #[test]
    fn the_last_pattern_that_matches_decides() {
        check(&["shop.*", "!shop.tmp*"], ("shop", "tmp1"), false);
        check(&["shop.*", "!shop.tmp*", "shop.tmp1"], ("shop", "tmp1"), true);
        check(&["!shop.tmp*"], ("shop", "orders"), false);
    }

    #[test]
    fn names_compare_without_case_and_system_schemas_never_match() {
        check(&["Shop.Orders"], ("sHOP", "oRDERS"), true);
        check(&["*.*"], ("MySQL", "user"), false);
        check(&["mysql.*"], ("mysql", "user"), false);
    }

    #[test]
    fn a_schema_matches_when_one_of_its_tables_could() {
        let filter = TableFilter::parse(&["shop.a", "!gone.*"]).expect("well formed");
        assert!(filter.matches_schema("SHOP"));
        assert!(!filter.matches_schema("gone") && !filter.matches_schema("mysql"));
    }

    #[test]
    fn a_pattern_without_both_parts_is_refused_by_name() {
        for pattern in ["shop", "shop.", ".t", "!", ""] {
            let refused = TableFilter::parse(&[pattern]);
            assert_eq!(refused, Err(ConfigError::BadPattern { pattern: pattern.into() }));
        }
        assert_eq!(TableFilter::parse::<&str>(&[]), Err(ConfigError::NoPatterns));
    }
}
