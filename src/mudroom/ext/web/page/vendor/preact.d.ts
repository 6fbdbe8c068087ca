// As far as the page uses it.
export const h: any, render: any, Fragment: any, options: any, createContext: any;
