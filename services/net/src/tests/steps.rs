//! The longest step of work, as it is told.

use doppel_service::Heart;

use super::*;

#[test]
fn the_longest_step_is_told() {
    let heart = Heart::new().unwrap();
    let alarm = heart.alarm().try_clone_to_owned().unwrap();
    let mut theirs = Heart::open(heart.file().try_clone_to_owned().unwrap(), alarm).unwrap();
    theirs.beat();
    std::thread::sleep(Duration::from_millis(2));
    theirs.rest();
    let longest = heart.longest();
    assert!(longest >= Duration::from_millis(2));
    std::thread::sleep(longest + Duration::from_millis(2));
    theirs.beat();
    assert_eq!(heart.longest(), longest, "to wait for work is no step");
    heart.begin();
    assert_eq!(heart.longest(), Duration::ZERO);
}
