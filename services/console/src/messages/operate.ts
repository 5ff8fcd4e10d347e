/** Words of operation and administration. */
const en = {
  title: "Operate",
};

const de: typeof en = {
  title: "Betrieb",
};

export const operate = { en, de };
