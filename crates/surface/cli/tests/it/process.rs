//! Running the binary and looking at what it prints.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// A recorded file of the project.
pub(crate) fn recorded(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../lab/testkit/data", file].iter().collect()
}

pub(crate) fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args);
    command
}

/// Runs to the end.
pub(crate) fn run(args: &[&str]) -> Output {
    tidegate(args).output().expect("the binary runs")
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A command that runs until it is stopped; killed outright when dropped.
pub(crate) struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = tidegate(args).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        Self { child, lines }
    }

    /// The rest of the first line that begins with `prefix`.
    pub(crate) fn line(&mut self, prefix: &str) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        let found = lines.find_map(|line| line.strip_prefix(prefix).map(str::to_owned));
        found.unwrap_or_else(|| panic!("it ended before a line that begins with {prefix:?}"))
    }

    /// A demo with its page on a free port.
    pub(crate) fn demo(args: &[&str]) -> Self {
        Self::start(&[&["demo", "--listen", "127.0.0.1:0"], args].concat())
    }

    /// Where a demo's page is.
    pub(crate) fn page(&mut self) -> String {
        let rest = self.line("search on http://");
        rest.split(' ').next().expect("an address").to_owned()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is running");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `GET path` over plain HTTP/1.1: status code and body.
pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the page listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code");
    (status, body.to_owned())
}
