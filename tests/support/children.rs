//! A test that runs in a process of its own: for what a whole process has one of, as its umask and its loggers. Proves nothing
//! by itself.

use std::env;
use std::process::Command;

/// Runs the rest of the test `name`, with its modules, once in a child for each value. True in the child, with its value in the variable.
pub(crate) fn in_children(name: &str, values: &[&str]) -> Option<String> {
    if let Ok(value) = env::var(VARIABLE) {
        return Some(value);
    }
    for value in values {
        let mut command = Command::new(env::current_exe().expect("this program"));
        let child = command.args(["--exact", name, "--nocapture"]).env(VARIABLE, value).output().expect("it starts");
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && said.contains("1 passed"), "{value}: {said}\n{}", String::from_utf8_lossy(&child.stderr));
        said.lines().filter(|line| line.contains(": ") && !line.starts_with("test ")).for_each(|line| println!("{line}"));
    }
    None
}

const VARIABLE: &str = "JOURNEYMAN_TEST_CHILD";
