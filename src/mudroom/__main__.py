from mudroom.cli import main

main()
