/** Words of charts and reports. */
const en = {
  title: "Charts",
  chart: "Chart",
  drawing: "Drawing …",
  alt: (type: string, title: string) => (title ? `${type}: ${title}` : type),
  types: {
    bar: "Bar chart",
    line: "Line chart",
    area: "Area chart",
    point: "Scatter chart",
    arc: "Pie chart",
    histogram: "Histogram",
  } as Record<string, string>,
  showTable: "Show as table",
  hideTable: "Hide table",
  saveSpec: "Specification",
  notSaved: "The picture could not be made. The table can be saved as CSV.",
  problems: {
    large: "This chart is too large to be drawn here.",
    refused: "This chart is not drawn: its specification has a part that is not accepted here:",
    invalid: "This chart is not drawn: its specification is not valid.",
    slow: "This chart is not drawn: it took too long.",
  },
  report: "Report",
  findings: "Main findings",
  sectionSources: "Sources of this section",
};

const de: typeof en = {
  title: "Diagramme",
  chart: "Diagramm",
  drawing: "Wird gezeichnet …",
  alt: (type, title) => (title ? `${type}: ${title}` : type),
  types: {
    bar: "Balkendiagramm",
    line: "Liniendiagramm",
    area: "Flächendiagramm",
    point: "Streudiagramm",
    arc: "Kreisdiagramm",
    histogram: "Histogramm",
  },
  showTable: "Als Tabelle zeigen",
  hideTable: "Tabelle ausblenden",
  saveSpec: "Spezifikation",
  notSaved: "Das Bild konnte nicht erstellt werden. Die Tabelle lässt sich als CSV speichern.",
  problems: {
    large: "Dieses Diagramm ist zu groß, um hier gezeichnet zu werden.",
    refused: "Dieses Diagramm wird nicht gezeichnet: Ein Teil seiner Spezifikation wird hier nicht angenommen:",
    invalid: "Dieses Diagramm wird nicht gezeichnet: Seine Spezifikation ist ungültig.",
    slow: "Dieses Diagramm wird nicht gezeichnet: Es dauerte zu lange.",
  },
  report: "Bericht",
  findings: "Wichtigste Ergebnisse",
  sectionSources: "Quellen dieses Abschnitts",
};

export const charts = { en, de };
