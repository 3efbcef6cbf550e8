//! The program `journeyman`: see [`journeyman::cli`].

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    journeyman::cli::run(std::env::args_os(), &mut io::stdout().lock(), &mut io::stderr().lock()).into()
}
