const isNumber = require("is-number");
const colors = require("picocolors");

const items = ["look before you leap", "42", "apply"];
for (const item of items) console.log(isNumber(item) ? colors.dim(item) : colors.green(item));
