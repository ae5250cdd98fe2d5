customer = "Globex"
