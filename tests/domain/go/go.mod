module doppel.example/goload

go 1.21
