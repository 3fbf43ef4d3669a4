//! Tests of the line discipline; expectations are what Linux does with the same keys.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

fn disc() -> LineDisc {
    LineDisc::new(Termios::default(), 4096)
}

fn with(change: impl FnOnce(&mut Termios)) -> LineDisc {
    let mut t = Termios::default();
    change(&mut t);
    LineDisc::new(t, 4096)
}

fn key(d: &mut LineDisc, s: &[u8]) -> Effects {
    let mut fx = Effects::default();
    assert_eq!(d.receive(s, &mut fx), s.len());
    fx
}

fn shown(d: &mut LineDisc) -> String {
    let mut b = [0; 8192];
    let n = d.take_output(&mut b);
    String::from_utf8_lossy(&b[..n]).into_owned()
}

fn read(d: &mut LineDisc) -> Option<Vec<u8>> {
    let mut b = [0; 8192];
    let (n, ended) = d.read(&mut b);
    (n > 0 || ended).then(|| b[..n].to_vec())
}

fn line(d: &mut LineDisc) -> String {
    String::from_utf8(read(d).expect("a line")).expect("text")
}

#[test]
fn a_line_is_readable_when_it_ends() {
    let mut d = disc();
    key(&mut d, b"ab");
    assert!(!d.readable(true));
    assert_eq!(read(&mut d), None);
    key(&mut d, b"c\r");
    assert!(d.readable(true));
    assert_eq!(d.available(), 4);
    assert_eq!(shown(&mut d), "abc\r\n");
    assert_eq!(line(&mut d), "abc\n");
}

#[test]
fn reads_stop_at_lines_and_take_parts_of_them() {
    let mut d = disc();
    key(&mut d, b"one\ntwo\n");
    let mut b = [0; 2];
    assert_eq!(d.available(), 8);
    assert_eq!(d.read(&mut b), (2, false));
    assert_eq!(d.read(&mut b), (2, true));
    assert_eq!(line(&mut d), "two\n");
    assert!(!d.readable(false));
}

#[test]
fn erase_echoes_backspaces() {
    let mut d = disc();
    key(&mut d, b"abx\x7fc\n");
    assert_eq!(shown(&mut d), "abx\x08 \x08c\r\n");
    assert_eq!(line(&mut d), "abc\n");
    key(&mut d, b"\x01\x7f\x7f\n");
    assert_eq!(shown(&mut d), "^A\x08 \x08\x08 \x08\r\n");
    assert_eq!(line(&mut d), "\n");
}

#[test]
fn word_erase_and_kill() {
    let mut d = disc();
    key(&mut d, b"one two  \x17x\n");
    assert_eq!(line(&mut d), "one x\n");
    shown(&mut d);
    key(&mut d, b"junk\x15ok\n");
    assert_eq!(shown(&mut d), "junk\x08 \x08\x08 \x08\x08 \x08\x08 \x08ok\r\n");
    assert_eq!(line(&mut d), "ok\n");
    let mut d = with(|t| t.lflag &= !ECHOKE);
    key(&mut d, b"junk\x15ok\n");
    assert_eq!(shown(&mut d), "junk^U\r\nok\r\n");
}

#[test]
fn utf8_characters_are_erased_whole() {
    let mut d = with(|t| t.iflag |= IUTF8);
    key(&mut d, "aé€\x7f\x7fb\n".as_bytes());
    assert_eq!(line(&mut d), "ab\n");
    assert_eq!(shown(&mut d), "aé€\x08 \x08\x08 \x08b\r\n");
    let mut d = disc();
    key(&mut d, "é\x7f\n".as_bytes());
    assert_eq!(read(&mut d), Some(vec![0xc3, b'\n']));
}

#[test]
fn tabs_are_erased_to_where_they_began() {
    let mut d = disc();
    d.write(b"$ ");
    key(&mut d, b"abc\t\x7f");
    assert_eq!(shown(&mut d), "$ abc\t\x08\x08\x08");
}

#[test]
fn end_of_file_is_a_record_boundary() {
    let mut d = disc();
    key(&mut d, b"ab\x04");
    assert_eq!(d.available(), 2);
    assert_eq!(line(&mut d), "ab");
    key(&mut d, b"\x04");
    assert!(d.readable(true));
    assert_eq!(read(&mut d), Some(vec![]));
    assert_eq!(read(&mut d), None);
    // Exactly as much as asked for: the boundary does not become an end of file of its own.
    key(&mut d, b"xy\x04");
    let mut b = [0; 2];
    assert_eq!(d.read(&mut b), (2, true));
    assert!(!d.readable(false));
}

#[test]
fn eol_characters_end_lines() {
    let mut d = with(|t| {
        t.cc[cc::VEOL] = b';';
        t.cc[cc::VEOL2] = b'!';
    });
    key(&mut d, b"a;b!");
    assert_eq!(line(&mut d), "a;");
    assert_eq!(line(&mut d), "b!");
}

#[test]
fn literal_next_and_reprint() {
    let mut d = disc();
    let fx = key(&mut d, b"a\x16\x03b");
    assert_eq!(fx, Effects::default());
    shown(&mut d);
    key(&mut d, b"\x12\n");
    assert_eq!(shown(&mut d), "^R\r\na^Cb\r\n");
    assert_eq!(line(&mut d), "a\x03b\n");
}

#[test]
fn signals_flush_and_echo() {
    let mut d = disc();
    d.write(b"out");
    let fx = key(&mut d, b"junk\x03ok\n");
    assert!(fx.interrupt && fx.flushed && !fx.quit);
    assert_eq!(line(&mut d), "ok\n");
    assert_eq!(shown(&mut d), "^Cok\r\n");
    let mut d = with(|t| t.lflag |= NOFLSH);
    let fx = key(&mut d, b"keep\x1a\x1c\n");
    assert!(fx.suspend && fx.quit && !fx.flushed);
    assert_eq!(line(&mut d), "keep\n");
    let mut d = with(|t| t.lflag &= !ISIG);
    assert_eq!(key(&mut d, b"\x03\n"), Effects::default());
    assert_eq!(line(&mut d), "\x03\n");
}

#[test]
fn disabled_characters_do_nothing() {
    let mut d = with(|t| t.cc[cc::VINTR] = 0);
    assert_eq!(key(&mut d, b"\x00\x03\n"), Effects::default());
    assert_eq!(line(&mut d), "\x00\x03\n");
}

#[test]
fn raw_mode_gives_bytes() {
    let mut d = with(|t| {
        t.iflag = 0;
        t.oflag = 0;
        t.lflag = 0;
        t.cc[cc::VMIN] = 3;
    });
    key(&mut d, b"\x03\r");
    assert!(d.readable(false) && !d.readable(true));
    key(&mut d, b"\x7f");
    assert!(d.readable(true));
    assert_eq!(line(&mut d), "\x03\r\x7f");
    assert_eq!(shown(&mut d), "");
    assert_eq!(d.write(b"a\nb"), 3);
    assert_eq!(shown(&mut d), "a\nb");
}

#[test]
fn changing_modes_keeps_input() {
    let mut d = disc();
    key(&mut d, b"typed");
    let mut t = *d.termios();
    t.lflag &= !ICANON;
    d.set_termios(t);
    assert_eq!(d.available(), 5);
    t.lflag |= ICANON;
    d.set_termios(t);
    assert!(d.readable(true));
    assert_eq!(line(&mut d), "typed");
    key(&mut d, b"x\x7fy\n");
    assert_eq!(line(&mut d), "y\n");
}

#[test]
fn carriage_returns_and_newlines_are_mapped() {
    let mut d = with(|t| t.iflag = INLCR);
    key(&mut d, b"a\nb\r");
    assert_eq!(d.available(), 0);
    let mut d = with(|t| t.iflag = IGNCR);
    key(&mut d, b"a\r\n");
    assert_eq!(line(&mut d), "a\n");
    let mut d = with(|t| t.iflag = ISTRIP);
    key(&mut d, b"\xe1\n");
    assert_eq!(line(&mut d), "a\n");
    let mut d = with(|t| t.iflag = PARMRK);
    key(&mut d, b"\xff\n");
    assert_eq!(read(&mut d), Some(vec![0xff, 0xff, b'\n']));
}

#[test]
fn output_processing() {
    let mut d = disc();
    assert_eq!(d.write(b"x\ny"), 3);
    assert_eq!(shown(&mut d), "x\r\ny");
    let mut d = with(|t| t.oflag = OPOST | OCRNL | ONLRET);
    d.write(b"a\rb");
    assert_eq!(shown(&mut d), "a\nb");
    let mut d = with(|t| t.oflag = OPOST | ONOCR);
    d.write(b"\ra\r");
    assert_eq!(shown(&mut d), "a\r");
    let mut d = with(|t| t.oflag |= XTABS);
    d.write(b"abc\td");
    assert_eq!(shown(&mut d), "abc     d");
}

#[test]
fn flow_control_holds_output_and_echo() {
    let mut d = disc();
    assert!(key(&mut d, b"\x13").stopped);
    assert_eq!(d.write(b"x"), 0);
    key(&mut d, b"ab");
    assert_eq!(shown(&mut d), "");
    assert!(key(&mut d, b"\x11").started);
    assert_eq!(shown(&mut d), "ab");
    assert_eq!(d.write(b"x"), 1);
    let mut d = with(|t| t.iflag |= IXANY);
    key(&mut d, b"\x13");
    assert!(key(&mut d, b"q").started);
    let mut d = disc();
    key(&mut d, b"\x13");
    let mut t = *d.termios();
    t.iflag &= !IXON;
    assert!(d.set_termios(t) && !d.stopped());
}

#[test]
fn echo_modes() {
    let mut d = with(|t| t.lflag = (t.lflag & !ECHO) | ECHONL);
    key(&mut d, b"secret\n");
    assert_eq!(shown(&mut d), "\r\n");
    let mut d = with(|t| t.lflag &= !ECHOCTL);
    key(&mut d, b"\x01");
    assert_eq!(shown(&mut d), "\x01");
    let mut d = with(|t| t.lflag &= !ECHOE);
    key(&mut d, b"a\x7f");
    assert_eq!(shown(&mut d), "a^?");
}

#[test]
fn long_lines_are_cut_and_queues_bounded() {
    let mut d = disc();
    key(&mut d, &[b'x'; 5000]);
    key(&mut d, b"\n");
    let l = line(&mut d);
    assert_eq!(l.len(), LINE_MAX);
    assert!(l.ends_with("x\n"));
    let mut fx = Effects::default();
    let mut taken = 0;
    while d.has_room() {
        taken += d.receive(b"line\n", &mut fx);
    }
    assert!((INPUT_MAX..INPUT_MAX + 5).contains(&taken));
    assert_eq!(d.receive(b"x", &mut fx), 0);
    assert!(d.output_len() <= 4096 + ECHO_MAX);
    while read(&mut d).is_some() {}
    assert!(d.has_room());
}

#[test]
fn output_is_bounded() {
    let mut d = disc();
    let n = d.write(&[b'\n'; 8192]);
    assert!(n < 8192 && d.output_len() <= 4096 && !d.writable());
    d.flush_output();
    assert!(d.writable());
}
