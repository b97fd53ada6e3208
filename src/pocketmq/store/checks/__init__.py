"""What is right and what is wrong with the files of a store, one kind of file at a time; `store.verify` asks them all."""
