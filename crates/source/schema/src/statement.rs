//! Statements that are rebuilt because the typed one is about more than the event, or names its tables
//! without their database (`reference/tidb-schema-and-ddl.md` §7.3, §7.4).

use tidegate_codec::{ddl::ExchangeArgs, event::TableName};

pub(crate) fn drop_table(name: &TableName) -> String {
    format!("DROP TABLE {}", full(name))
}

pub(crate) fn drop_view(name: &TableName) -> String {
    format!("DROP VIEW {}", full(name))
}

/// One statement with all pairs in order: only together are they atomic, and a swap of names needs that.
pub(crate) fn rename_tables<'a>(pairs: impl IntoIterator<Item = (&'a TableName, &'a TableName)>) -> String {
    let pairs: Vec<_> =
        pairs.into_iter().map(|(old, new)| format!("{} TO {}", full(old), full(new))).collect();
    format!("RENAME TABLE {}", pairs.join(", "))
}

pub(crate) fn exchange_partition(partitioned: &TableName, args: &ExchangeArgs, normal: &TableName) -> String {
    let validation = if args.with_validation { "" } else { " WITHOUT VALIDATION" };
    format!(
        "ALTER TABLE {} EXCHANGE PARTITION {} WITH TABLE {}{validation}",
        full(partitioned),
        quoted(&args.partition_name),
        full(normal),
    )
}

fn full(name: &TableName) -> String {
    format!("{}.{}", quoted(&name.schema), quoted(&name.table))
}

/// An identifier in back quotes, with back quotes inside doubled.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Whether `query` is CREATE TABLE … LIKE: the word comes right after the table's name, perhaps behind a
/// parenthesis. A column or default of that name does not count.
pub(crate) fn is_create_like(query: &str) -> bool {
    let mut words = Words { rest: query };
    let mut next = || words.next().unwrap_or("");
    if !next().eq_ignore_ascii_case("create") {
        return false;
    }
    while !next_is_table(&mut next) {}
    let mut word = next();
    if word.eq_ignore_ascii_case("if") {
        next();
        next();
        word = next();
    }
    // The name is `a` or `a . b`; the word after it decides.
    if word.is_empty() {
        return false;
    }
    let mut after = next();
    if after == "." {
        next();
        after = next();
    }
    if after == "(" {
        after = next();
    }
    after.eq_ignore_ascii_case("like")
}

/// Skips TEMPORARY and the like; an empty word is the end.
fn next_is_table<'a>(next: &mut impl FnMut() -> &'a str) -> bool {
    let word = next();
    word.is_empty() || word.eq_ignore_ascii_case("table")
}

/// The words, quoted names and single punctuation marks of a statement, without comments.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn skip_blank(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            let end = match self.rest {
                comment if comment.starts_with("/*") => comment.find("*/").map(|at| at + 2),
                comment if comment.starts_with("-- ") || comment.starts_with('#') => comment.find('\n'),
                _ => return,
            };
            self.rest = end.and_then(|end| self.rest.get(end..)).unwrap_or("");
        }
    }

    fn take(&mut self, len: usize) -> &'a str {
        let (word, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        word
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.skip_blank();
        let first = self.rest.chars().next()?;
        let len = match first {
            '`' | '"' | '\'' => quoted_len(self.rest, first),
            c if is_word(c) => self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len()),
            c => c.len_utf8(),
        };
        Some(self.take(len))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Length of the quoted name that `text` begins with; a doubled quote stands for itself.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut marks = text.match_indices(quote).map(|(at, _)| at).skip(1).peekable();
    while let Some(at) = marks.next() {
        if marks.next_if_eq(&(at + 1)).is_none() {
            return at + 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(schema: &str, table: &str) -> TableName {
        TableName { schema: schema.into(), table: table.into(), ..TableName::default() }
    }

    #[test]
    fn rebuilt_statements_name_database_and_table_in_back_quotes() {
        let (a, b) = (name("d1", "a`b"), name("D2", "x"));
        assert_eq!(drop_table(&a), "DROP TABLE `d1`.`a``b`");
        assert_eq!(drop_view(&b), "DROP VIEW `D2`.`x`");
        assert_eq!(
            rename_tables([(&a, &b), (&b, &a)]),
            "RENAME TABLE `d1`.`a``b` TO `D2`.`x`, `D2`.`x` TO `d1`.`a``b`"
        );
        let args = ExchangeArgs { partition_name: "p0".into(), ..ExchangeArgs::default() };
        assert_eq!(
            exchange_partition(&b, &args, &a),
            "ALTER TABLE `D2`.`x` EXCHANGE PARTITION `p0` WITH TABLE `d1`.`a``b` WITHOUT VALIDATION"
        );
    }

    #[test]
    fn like_is_recognised_only_where_the_source_stands() {
        for yes in [
            "create table t_like like t",
            "CREATE TABLE IF NOT EXISTS `d`.`a``b` LIKE x.y",
            "/* c */ create table d.t (like s)",
            "create global temporary table t like s",
        ] {
            assert!(is_create_like(yes), "{yes}");
        }
        for no in [
            "create table t (`like` int)",
            "create table t (a varchar(9) default 'like x')",
            "create table `like` (a int)",
            "create table t as select 'a' like 'b'",
            "drop table t",
            "create table",
            "create",
            "",
            "create table `unclosed",
        ] {
            assert!(!is_create_like(no), "{no}");
        }
    }
}
