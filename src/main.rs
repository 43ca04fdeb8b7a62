//! podling: see the library crate; this only dispatches.

fn main() -> std::process::ExitCode {
    podling::cli::main()
}
